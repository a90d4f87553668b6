"""Formatting of counts in messages."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Format ``number`` with its noun in the singular or plural.

    >>> counted(1, "image"), counted(1200, "image"), counted(0, "class", "classes")
    ('1 image', '1,200 images', '0 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
