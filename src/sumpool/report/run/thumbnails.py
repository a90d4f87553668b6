"""Parts of a page made of thumbnails: retrieved images, pooling weights, prototypes."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from sumpool.report.html_page import image_html
from sumpool.report.overlays import effective_share, overlay
from sumpool.report.run.gallery import Gallery, Neighbor, Prototype, Query, Region

T = TypeVar("T")

#: Shown at once; the others unfold.
OPEN = 6

STYLE = """
:root { --right: #1a7f37; --wrong: #c62828; }
@media (prefers-color-scheme: dark) { :root { --right: #4cc26b; --wrong: #ff7b72; } }
h3 { font-size: 1.02rem; margin: 1.4rem 0 .4rem; }
.tile { margin: 0; min-width: 0; font-size: .74rem; line-height: 1.3; }
.tile img { display: block; width: 100%; height: auto; border-radius: 4px; }
.tile .name { display: -webkit-box; overflow: hidden; overflow-wrap: break-word;
  -webkit-box-orient: vertical; -webkit-line-clamp: 2; }
.tile .dim { color: var(--dim); }
.hits { display: grid; grid-template-columns: repeat(9, 1fr); gap: .45rem; margin: 0 0 1.1rem; }
.hits .tile > .frame { padding: 2px; border: 2px solid transparent; border-radius: 7px; }
.hits .query > .frame { border-color: var(--ink); }
.hits .right > .frame { border-color: var(--right); }
.hits .wrong > .frame { border-color: var(--wrong); border-style: dashed; }
.right b { color: var(--right); }
.wrong b { color: var(--wrong); }
.line { font-size: .88rem; margin: .2rem 0 .3rem; overflow-wrap: anywhere; }
.pairs { display: grid; grid-template-columns: repeat(3, 1fr); gap: .8rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 3px; }
.pair .text { grid-column: 1 / -1; }
.regions { display: grid; grid-template-columns: repeat(6, 1fr); gap: .45rem; margin: 0 0 1rem; }
.prototypes { display: grid; grid-template-columns: repeat(2, 1fr); gap: 0 1.4rem; }
.cut { position: relative; display: block; }
.cut i { position: absolute; border: 2px solid #ffffff; outline: 1px solid #000000; }
.scale { max-width: 22rem; margin: .6rem 0 1.6rem; font-size: .78rem; }
.bar { height: .8rem; border-radius: 3px; border: 1px solid var(--line); }
.ticks { position: relative; height: 1.2rem; }
.ticks span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.ticks span:first-child { transform: none; }
.ticks span:last-child { transform: translateX(-100%); }
details { margin: .4rem 0 1rem; }
summary { cursor: pointer; font-size: .9rem; padding: .3rem 0; }
@media (max-width: 46rem) {
  .hits { grid-template-columns: repeat(3, 1fr); }
  .pairs, .prototypes { grid-template-columns: 1fr; }
  .regions { grid-template-columns: repeat(3, 1fr); }
}
"""


def queries_html(queries: Sequence[Query], images: Mapping[str, bytes]) -> str:
    """Each query with what was retrieved for it, right and wrong told by sign, frame and colour."""
    return _folded(queries, "queries", lambda query: _query_html(query, images))


def weights_html(gallery: Gallery, queries: Sequence[Query], top: float) -> str:
    """Image and weights of each of the queries that have some."""

    def pair(query: Query) -> str:
        weights = gallery.weights[query.image]
        jpeg = gallery.images[query.image]
        heat = overlay(jpeg, weights, top)
        alt = f"{query.class_name}: pooling weights, largest {weights.max():.1f} times an equal one"
        return (
            f'<div class="pair tile">{image_html(jpeg, f"image of {query.class_name}", "jpeg")}'
            f'{image_html(heat, alt, "jpeg")}<div class="text">{_name(query)}'
            f'<span class="dim">largest {weights.max():.1f}, spread over '
            f"{effective_share(weights):.0%}</span></div></div>"
        )

    shown = [query for query in queries if query.image in gallery.weights]
    return _folded(shown, "images", pair, "pairs")


def prototypes_html(prototypes: Sequence[Prototype], images: Mapping[str, bytes]) -> str:
    """Each prototype with the regions that feed it most."""

    def block(prototype: Prototype) -> str:
        regions = "\n".join(_region_html(region, images) for region in prototype.regions)
        return (
            f'<div><p class="line"><b>Prototype {prototype.index}</b> receives '
            f'{prototype.share:.1%} of what is pooled</p>\n<div class="regions">\n{regions}\n'
            "</div></div>"
        )

    return _folded(prototypes, "prototypes", block, "prototypes")


def is_flat(maps: Mapping[str, NDArray[np.float32]]) -> bool:
    """Whether all weights are equal, as those of average pooling are."""
    return all(np.allclose(weights, 1, atol=1e-3) for weights in maps.values())


def _folded(things: Sequence[T], name: str, draw: Callable[[T], str], kind: str = "") -> str:
    def part(some: Sequence[T]) -> str:
        return f'<div class="{kind}">\n' + "\n".join(map(draw, some)) + "\n</div>"

    text = part(things[:OPEN])
    if len(things) > OPEN:
        count = len(things) - OPEN
        text += (
            f"\n<details><summary>{count} more {name}</summary>\n{part(things[OPEN:])}</details>"
        )
    return text


def _query_html(query: Query, images: Mapping[str, bytes]) -> str:
    if query.average_precision is None:
        judged = "no other image of its class is searched"
    else:
        judged = f"average precision at R = {query.relevant}: {query.average_precision:.1%}"
    own = image_html(images[query.image], f"query, {query.class_name}", "jpeg")
    tiles = [
        f'<div class="tile query"><div class="frame">{own}</div>{_name(query)}'
        '<span class="dim">query</span></div>'
    ]
    tiles += [_hit_html(hit, rank, images) for rank, hit in enumerate(query.neighbors, 1)]
    return (
        f'<div><p class="line"><b>{html.escape(query.class_name)}</b> · {judged}</p>\n'
        f'<div class="hits">\n' + "\n".join(tiles) + "\n</div></div>"
    )


def _hit_html(hit: Neighbor, rank: int, images: Mapping[str, bytes]) -> str:
    kind, sign = ("right", "✓") if hit.right else ("wrong", "✗")
    picture = image_html(images[hit.image], f"rank {rank}, {kind}: {hit.class_name}", "jpeg")
    return (
        f'<div class="tile {kind}"><div class="frame">{picture}</div>{_name(hit)}'
        f'<span class="dim"><b>{sign}</b> {hit.similarity:.2f}</span></div>'
    )


def _region_html(region: Region, images: Mapping[str, bytes]) -> str:
    left, top, right, bottom = (100 * edge for edge in region.box)
    place = (
        f"left: {left:.1f}%; top: {top:.1f}%; width: {right - left:.1f}%; "
        f"height: {bottom - top:.1f}%"
    )
    picture = image_html(images[region.image], f"region of {region.class_name}", "jpeg")
    return (
        f'<div class="tile"><span class="cut">{picture}<i style="{place}"></i></span>'
        f'{_name(region)}<span class="dim">{region.weight:.1f}</span></div>'
    )


def _name(thing: Query | Neighbor | Region) -> str:
    title = html.escape(f"{thing.class_name}: {thing.item}")
    # Long names break where words do.
    text = html.escape(thing.class_name).replace("_", "_<wbr>")
    return f'<span class="name" title="{title}">{text}</span>'
