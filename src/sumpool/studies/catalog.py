"""Studies by name. To add a study, add a package and a line here."""

from __future__ import annotations

from collections.abc import Mapping

from sumpool.studies import (
    averaging,
    ccp_geometry,
    ccp_plane,
    ccp_search,
    ccp_settings,
    centers,
    collage,
    cost,
    glyphs,
    grids,
    prediction,
    tokens,
    toy,
    zero_shot_loss,
)
from sumpool.studies.shared.study import Study

STUDIES: Mapping[str, Study] = {
    "glyphs": glyphs.STUDY,
    "toy": toy.STUDY,
    "tokens": tokens.STUDY,
    "margins": tokens.MARGINS,
    "collage": collage.STUDY,
    "collage-paper": collage.PAPER,
    "zero-shot-loss": zero_shot_loss.STUDY,
    "components": grids.COMPONENTS,
    "share": grids.SHARE,
    "prototypes": grids.PROTOTYPES,
    "screening": grids.SCREENING,
    "prediction": prediction.STUDY,
    "ccp-plane": ccp_plane.STUDY,
    "ccp-geometry": ccp_geometry.STUDY,
    "ccp-search": ccp_search.STUDY,
    "ccp-pool": grids.CCP_POOL,
    "ccp-problems": grids.CCP_PROBLEMS,
    "ccp-batch": grids.CCP_BATCH,
    "ccp-settings": ccp_settings.STUDY,
    "centers": centers.STUDY,
    "sizes": grids.SIZES,
    "averaging": averaging.STUDY,
    "cost": cost.STUDY,
}


def get_study(name: str) -> Study:
    """Return the study named ``name``.

    Raises:
        ValueError: If no study has that name; the message lists the choices.
    """
    if name not in STUDIES:
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {name!r}")
    return STUDIES[name]
