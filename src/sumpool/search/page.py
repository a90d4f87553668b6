"""Answers and duplicates as self-contained HTML pages."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from tqdm import tqdm

from sumpool.data import BrokenImageError
from sumpool.evaluation.gallery_images import thumbnail
from sumpool.report.html_page import write_page
from sumpool.report.overlays import overlay
from sumpool.search.answers import Answer, duplicates_verdict
from sumpool.search.duplicates import Duplicates
from sumpool.search.index import Index
from sumpool.search.queries import Embedded, View

#: Side of the pictures, in pixels.
SIDE = 200


def write_answers(out: Path, index: Index, answers: Sequence[Answer]) -> Path:
    """Write a page with the results and, if the pooling allows it, why they match."""
    parts = [_answer(index, it) for it in answers]
    note = ""
    if not index.explains:
        note = f"The pooling {index.model.config.pooling} cannot say where a match comes from."
    return write_page(out, "search.html", title="sumpool: search", answers=parts, note=note)


def write_duplicates(
    out: Path, index: Index, groups: Sequence[Duplicates], threshold: float
) -> Path:
    """Write a page with the groups of duplicates."""
    shown = [
        {
            "title": "same content" if it.exact else f"similarity {it.similarity:.3f}",
            "cards": [_card(index, id) for id in it.ids],
        }
        for it in tqdm(groups, "drawing", unit=" groups", disable=len(groups) < 20)
    ]
    verdict = duplicates_verdict(groups, threshold)
    return write_page(
        out, "duplicates.html", title="sumpool: duplicates", groups=shown, verdict=verdict
    )


def _answer(index: Index, answer: Answer) -> dict[str, Any]:
    cards = []
    for match in answer.matches:
        card = _card(index, match.id) | {"similarity": f"{match.similarity:.3f}"}
        if answer.embedded is not None and index.explains and card["picture"] is not None:
            card["why"] = _why(index, answer.embedded, match.id)
        if answer.threshold is not None:
            card["far"] = match.similarity < answer.threshold.value
        cards.append(card)
    return {
        "query": answer.query,
        "picture": None if answer.embedded is None else _seen(answer.embedded.view),
        "verdict": answer.verdict,
        "cards": cards,
    }


def _why(index: Index, query: Embedded, id: int) -> list[bytes] | None:
    try:
        why = index.explain(query, id)
    except BrokenImageError:  # its thumbnail is stored
        return None
    shown = ((why.query, why.query_map), (why.result, why.result_map))
    return [_heat(view, heat) for view, heat in shown]


def _card(index: Index, id: int) -> dict[str, Any]:
    match = index.match(id)
    try:
        picture = index.thumbnail(id, SIDE)
    except BrokenImageError:
        picture = None
    return {
        "id": id,
        "path": match.path,
        "label": match.label,
        "picture": picture,
        "similarity": None,
        "why": None,
        "far": False,
    }


def _seen(view: View) -> bytes:
    """Draw the square of the query that the network saw, with its box."""
    image = view.image.copy()
    if view.box is not None:
        width = max(2, image.width // 100)
        ImageDraw.Draw(image).rectangle(view.box, outline="#e69f00", width=width)
    return thumbnail(image, SIDE)


def _heat(view: View, heat: NDArray[np.float32]) -> bytes:
    """Draw the view under a heat map of contributions to the match, scaled to the largest."""
    shares = np.clip(heat, 0, None)
    image: Image.Image = view.image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=90)
    return overlay(buffer.getvalue(), shares, max(float(shares.max()), 1e-12))
