"""Methods by label: the parts of a label, and the baselines of a method."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

#: Average poolings: methods that use them are baselines.
AVERAGES = ("gap", "gap+gmp")


@dataclass(frozen=True)
class Method:
    """Components of a method, which make up its label.

    Attributes:
        pool: The pooling, such as ``gsp`` or ``gap+gmp``.
        zero_shot: Whether the zero-shot loss is used: ``+zs``.
        center_reg: Regularizer of class centers: ``+reg:NAME``.
        xbm: Whether cross-batch memory is used: prefix ``xbm+``.
        ccp: Whether proxies are chance-constrained: prefix ``ccp+``.

    Example:
        >>> str(Method("gsp", zero_shot=True, xbm=True))
        'xbm+gsp+zs'
        >>> Method.parse("ccp+gap+gmp") == Method("gap+gmp", ccp=True)
        True
    """

    pool: str
    zero_shot: bool = False
    center_reg: str | None = None
    xbm: bool = False
    ccp: bool = False

    @classmethod
    def parse(cls, label: str) -> Method:
        """Return the method with this label."""
        rest, _, center_reg = label.partition("+reg:")
        ccp, rest = rest.startswith("ccp+"), rest.removeprefix("ccp+")
        xbm, rest = rest.startswith("xbm+"), rest.removeprefix("xbm+")
        pool = rest.removesuffix("+zs")
        return cls(pool, pool != rest, center_reg or None, xbm, ccp)

    def __str__(self) -> str:
        """Return the label, as used in tables and rows."""
        parts = ["ccp"] * self.ccp + ["xbm"] * self.xbm + [self.pool] + ["zs"] * self.zero_shot
        return "+".join([*parts, f"reg:{self.center_reg}"] if self.center_reg else parts)


def baselines(label: str) -> list[str]:
    """Return the labels of the simpler methods that a method is compared with.

    Example:
        >>> baselines("ccp+gsp+zs")
        ['gsp+zs', 'ccp+gsp', 'ccp+gap', 'gap', 'ccp+gap+gmp', 'gap+gmp']
    """
    own = Method.parse(label)
    simpler = [
        replace(own, ccp=False),
        replace(own, xbm=False),
        replace(own, center_reg=None),
        replace(own, zero_shot=False),
    ]
    # A method with max pooling is first compared with average pooling plus max pooling.
    averages = AVERAGES[::-1] if own.pool in ("gap+gmp", "gmp+gsp") else AVERAGES
    for pool in averages:
        average = replace(own, pool=pool, zero_shot=False)
        simpler += [average, replace(average, center_reg=None), Method(pool)]
    return [it for it in dict.fromkeys(map(str, simpler)) if it != label]


def baseline(label: str, present: Iterable[str]) -> str | None:
    """Return the baseline of a method among the methods in ``present``; None without one.

    It is the first of the method's :func:`baselines` with average pooling, and with the same
    proxies and memory or with neither. Average pooling itself has no baseline.

    Example:
        >>> ran = ["gap", "gsp+zs", "ccp+gap", "ccp+gsp+zs"]
        >>> [baseline(method, ran) for method in ran]
        [None, 'gap', 'gap', 'ccp+gap']
    """
    if label in AVERAGES:
        return None
    own, found = Method.parse(label), set(present)
    is_average = own.pool in AVERAGES and not (own.zero_shot or own.center_reg)
    for other in baselines(label):
        pool = Method.parse(other).pool
        allowed = {pool} if is_average else {pool, str(Method(pool, xbm=own.xbm, ccp=own.ccp))}
        if other in found and pool in AVERAGES and other in allowed:
            return other
    return None
