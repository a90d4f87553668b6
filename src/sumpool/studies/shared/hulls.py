"""Convex hulls of points in the plane, and how much the hulls of classes overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]


def convex_hull(points: Points) -> Points:
    """Compute the corners (k, 2) of the convex hull, counterclockwise, by Andrew's monotone chain.

    A single point has one corner, collinear points have two.

    Example:
        >>> convex_hull(np.array([[0.0, 0.0], [2.0, 0.0], [1.0, 0.5], [2.0, 2.0], [0.0, 2.0]]))
        array([[0., 0.],
               [2., 0.],
               [2., 2.],
               [0., 2.]])
    """
    ordered = np.unique(points, axis=0)  # sorted by x, then y, without duplicates
    if len(ordered) < 3:
        return ordered
    lower, upper = _chain(ordered), _chain(ordered[::-1])
    return np.array(lower[:-1] + upper[:-1])


def _chain(ordered: Points) -> list[Points]:
    chain: list[Points] = []
    for point in ordered:
        while len(chain) > 1 and _cross(chain[-1] - chain[-2], point - chain[-2]) <= 0:
            chain.pop()
        chain.append(point)
    return chain


def _cross(a: Points, b: Points) -> Points:
    """z-component of the cross product along the last dimension; > 0 if b lies left of a."""
    product: Points = a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    return product


def polygon_area(corners: Points) -> float:
    """Compute the area of a polygon from its corners (k, 2) in counterclockwise order."""
    return float(_cross(corners, np.roll(corners, -1, axis=0)).sum() / 2)


def inside(corners: Points, points: Points) -> NDArray[np.bool_]:
    """Return whether each of the points (n, 2) lies inside or on the hull with these corners."""
    edges = np.roll(corners, -1, axis=0) - corners
    left = _cross(edges, points[:, None] - corners) >= 0  # (n, k)
    # With one or two corners, "left of every edge" is a whole plane or line: the box bounds it.
    boxed = (points >= corners.min(0)) & (points <= corners.max(0))
    within: NDArray[np.bool_] = left.all(1) & boxed.all(1)
    return within


def intersection(a: Points, b: Points) -> Points:
    """Compute the corners (k, 2) of the intersection of two convex polygons; k = 0 if disjoint.

    Uses Sutherland-Hodgman clipping: ``a`` is cut along every edge of ``b``.
    """
    for start, end in zip(b, np.roll(b, -1, axis=0), strict=True):
        if not len(a):
            break
        side = _cross(end - start, a - start)  # ≥ 0 inside
        kept: list[Points] = []
        for point, after, here, there in zip(
            a, np.roll(a, -1, axis=0), side, np.roll(side, -1), strict=True
        ):
            if here >= 0:
                kept.append(point)
            if here * there < 0:
                kept.append(point + (after - point) * (here / (here - there)))
        a = np.array(kept).reshape(-1, 2)
    return a


def overlap(a: Points, b: Points) -> float:
    """Return the intersection area of two hulls as a share of the smaller hull, in [0, 1].

    For a hull without area, return the share of its corners that lie in the other hull.
    """
    if polygon_area(a) > polygon_area(b):
        a, b = b, a
    area = polygon_area(a)
    if area <= 0:
        return float(inside(b, a).mean())
    shared = intersection(a, b)
    return polygon_area(shared) / area if len(shared) > 2 else 0.0


def meet(a: Points, b: Points) -> bool:
    """Return whether two hulls have at least one point in common."""
    if polygon_area(b) <= 0:
        a, b = b, a
    if polygon_area(b) <= 0:
        touch = inside(a, b).any() or inside(b, a).any()
        return bool(touch) or (_splits(a, b) and _splits(b, a))
    return len(intersection(a, b)) > 0


def _splits(line: Points, segment: Points) -> bool:
    """Return whether the line through two points runs between the ends of a segment."""
    side = _cross(line[-1] - line[0], segment - line[0])
    return bool(side.min() < 0 < side.max())


def meeting_pairs(hulls: Sequence[Points]) -> float:
    """Return the share of pairs that have a point in common, among at least two hulls."""
    pairs = [meet(a, b) for a, b in combinations(hulls, 2)]
    return sum(pairs) / len(pairs)


@dataclass(frozen=True)
class HullOverlap:
    """Overlap of class hulls."""

    hulls: list[Points]  #: Corners of each class's hull, in label order
    #: Share of samples that lie in the hull of at least one other class.
    samples_inside_others: float
    #: Mean over class pairs of the intersection area over the smaller area.
    mean_overlap: float
    overlapping_pairs: float  #: Share of class pairs whose hulls overlap


def hull_overlap(embeddings: Points, labels: NDArray[np.int64]) -> HullOverlap:
    """Measure the overlap of the class hulls of ``embeddings`` (n, 2) with ``labels`` (n,)."""
    classes = np.unique(labels)
    if len(classes) < 2:
        raise ValueError(f"labels must name at least two classes, got {len(classes)}")
    hulls = [convex_hull(embeddings[labels == label]) for label in classes]
    intruding = np.zeros(len(labels), dtype=bool)
    for label, hull in zip(classes, hulls, strict=True):
        intruding |= inside(hull, embeddings) & (labels != label)
    overlaps = np.array([overlap(a, b) for a, b in combinations(hulls, 2)])
    return HullOverlap(
        hulls,
        samples_inside_others=float(intruding.mean()),
        mean_overlap=float(overlaps.mean()),
        overlapping_pairs=float((overlaps > 0).mean()),
    )


def pack_hulls(
    name: str, hulls: Sequence[Points], dtype: type[np.floating[Any]] = np.float64
) -> dict[str, NDArray[Any]]:
    """Return arrays that store hulls: all their corners, and the number of corners of each."""
    sizes = np.array([len(hull) for hull in hulls])
    return {f"{name}_corners": np.concatenate(hulls).astype(dtype), f"{name}_sizes": sizes}


def unpack_hulls(arrays: Mapping[str, NDArray[Any]], name: str) -> list[NDArray[Any]]:
    """Return the corners (k, 2) of each hull that :func:`pack_hulls` stored under ``name``."""
    return np.split(arrays[f"{name}_corners"], np.cumsum(arrays[f"{name}_sizes"])[:-1])
