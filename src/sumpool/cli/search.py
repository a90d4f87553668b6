"""``sumpool search``: find the images of an index that are most similar to a query."""

from __future__ import annotations

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from sumpool.cli.options import add_device, add_overwrite, count, verb_parser
from sumpool.training.config import ConfigError

SUMMARY = "find the images of an index that are most similar to a query"

DESCRIPTION = """\
Find the images of an index that are most similar to a query: an image file, or the id or path of an
indexed image. --box restricts the query to a region: the pooling weights are solved only on the
positions inside. --prototype finds the images in which a prototype is strongest.

Similarity is the cosine of the angle between two vectors. Each index has a threshold and says how
it was measured; the answer counts the results that reach it.

examples:
  sumpool search photos.index photo.jpg
  sumpool search photos.index 12 --box 40,60,300,280 -k 5
  sumpool search birds.index bird.jpg --where label=gull label=tern --html answer.html
  sumpool search birds.index --prototype 17 --json
"""


def build_parser() -> ArgumentParser:
    """Build the parser of the verb."""
    parser = verb_parser(DESCRIPTION, usage="sumpool search INDEX QUERY [QUERY ...] [options]")
    parser.add_argument("index", type=Path, metavar="INDEX", help="folder of the index")
    parser.add_argument(
        "queries",
        type=str,
        nargs="*",
        metavar="QUERY",
        help="image file, or id or path of an indexed image",
    )
    parser.add_argument(
        "-k", "--count", type=count, default=10, metavar="N", help="number of results (default: 10)"
    )
    parser.add_argument(
        "--where",
        type=str,
        nargs="+",
        metavar="label=NAME",
        help="restrict results to images with one of these labels",
    )
    parser.add_argument(
        "--box",
        type=str,
        metavar="x0,y0,x1,y1",
        help="region of the query to search by, in pixels of the upright image",
    )
    parser.add_argument(
        "--prototype",
        type=int,
        metavar="N",
        help="find the images in which this prototype is strongest",
    )
    parser.add_argument(
        "--threshold", type=float, metavar="T", help="minimum similarity of results (default: none)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--csv", action="store_true", help="print CSV")
    parser.add_argument(
        "--html", type=Path, metavar="FILE", help="write a page with the images and why they match"
    )
    add_device(parser)
    add_overwrite(parser)
    return parser


def run(options: Namespace) -> int:
    """Search, and print the results or write a page."""
    where, box = _check(options)
    from sumpool.cli.inputs import choose_device
    from sumpool.report.html_page import refuse_foreign_page
    from sumpool.search import Index
    from sumpool.search.answers import answer, answer_prototype, as_csv, as_json, as_text
    from sumpool.search.page import write_answers

    if options.html is not None:
        refuse_foreign_page(options.html, overwrite=options.overwrite)
    index = Index.open(options.index, choose_device(options.device))
    if options.prototype is not None:
        answers = [answer_prototype(index, options.prototype, options.count)]
    else:
        answers = [
            answer(
                index,
                query,
                options.count,
                where=where,
                box=box,
                threshold=options.threshold,
                embed=options.html is not None,
            )
            for query in options.queries
        ]
    if options.json:
        print(as_json(answers))
    elif options.csv:
        print(as_csv(answers), end="")
    elif options.html is None:
        print("\n\n".join(as_text(it) for it in answers))
    if options.html is not None:
        print(f"page: {write_answers(options.html, index, answers)}")
    return 0


def _check(options: Namespace) -> tuple[dict[str, list[str]] | None, list[float] | None]:
    """Validate the options; return the parsed ``--where`` and ``--box``."""
    formats = [f"--{name}" for name in ("json", "csv", "html") if options[name]]
    if len(formats) > 1:
        raise ConfigError(f"{' and '.join(formats)} are mutually exclusive")
    if options.prototype is not None:
        others = [
            f"--{name}" for name in ("where", "box", "threshold") if options[name] is not None
        ]
        if options.queries or others:
            what = "a QUERY" if options.queries else others[0]
            raise ConfigError(f"--prototype and {what} are mutually exclusive")
    elif options.threshold is not None and not -1 <= options.threshold <= 1:
        raise ConfigError(f"--threshold must be from -1 to 1, got {options.threshold:g}")
    elif not options.queries:
        raise ConfigError("QUERY is missing: give an image file, an id or a path, or --prototype N")
    if options.box is not None and len(options.queries) > 1:
        raise ConfigError(f"--box needs a single QUERY, got {len(options.queries)}")
    box = None
    if options.box is not None:
        try:
            box = [float(it) for it in options.box.split(",")]
        except ValueError:
            box = []
        if len(box) != 4:
            raise ConfigError(f"--box must be x0,y0,x1,y1 in pixels, got {options.box!r}")
    where: dict[str, list[str]] = {}
    for condition in options.where or ():
        key, equals, value = condition.partition("=")
        if not equals:
            raise ConfigError(f"--where must be label=NAME, got {condition!r}")
        where.setdefault(key, []).append(value)
    return where or None, box
