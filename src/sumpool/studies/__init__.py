"""Studies: each one file, one command, one folder of results.

Importing this package is cheap; a study and with it torch is imported when it is loaded.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from sumpool.system.rows import Row


class RunStudy(Protocol):
    """Run a study into a folder."""

    def __call__(
        self,
        out_dir: Path,
        *,
        seeds: int | None = None,
        quick: bool = False,
        progress: bool = True,
        force: bool = False,
        data: Path | None = ...,
        jobs: int | None = ...,
        weights: Path | None = ...,
    ) -> list[Row]:
        """Compute the cells that are not stored yet and return all of them.

        Args:
            out_dir: Folder of the results.
            seeds: How many seeds, 0 to ``seeds`` − 1; None takes the default of the study.
            quick: Take seconds: fewer seeds and steps. Shows that all works, not what comes out.
            progress: Show progress bars on stderr.
            force: Discard stored results first.
            data: Folder of the real images. Taken by the studies that need some, and by them alone
                (:meth:`Study.options`).
            jobs: Cells that run side by side; None is one a core. Taken by the studies whose cells
                do, and by them alone.
            weights: File of a pretrained backbone. Taken by the studies that start from one.
        """
        ...


#: What some studies take and others do not.
OPTIONS = ("data", "jobs", "weights")


@dataclass(frozen=True)
class Study:
    """What the command line knows of a study before loading it.

    Attributes:
        summary: What it shows, in one line.
        cost: What it takes.
        module: Where its ``run`` is.
    """

    summary: str
    cost: str
    module: str

    def load(self) -> RunStudy:
        """Import the study and return its ``run``."""
        return cast(RunStudy, import_module(self.module).run)

    def options(self) -> tuple[str, ...]:
        """Those of :data:`OPTIONS` that its ``run`` takes; imports the study."""
        taken = inspect.signature(self.load()).parameters
        return tuple(name for name in OPTIONS if name in taken)


#: The studies by name.
STUDIES: Mapping[str, Study] = {
    "glyphs": Study(
        "train GAP and GSP on letters among digits: retrieval of letters never seen",
        "about 4 minutes on two cores",
        "sumpool.studies.glyphs.experiment",
    ),
    "toy": Study(
        "pooling weights on a 10×10 map of red and blue on green (hard, smooth, average)",
        "a second",
        "sumpool.studies.toy.experiment",
    ),
    "tokens": Study(
        "learn 2-D tokens through average and sum pooling: MAP@R and hulls of the classes",
        "about 2 minutes on one core",
        "sumpool.studies.tokens.experiment",
    ),
    "margins": Study(
        "the token study at four margins of its loss: what the outcome depends on",
        "about 5 minutes on one core",
        "sumpool.studies.margins.experiment",
    ),
    "collage": Study(
        "all poolings on collages: which of them finds the foreground",
        "132 trainings of glyphs, about an hour on two cores; 288 of CIFAR collages (--data)",
        "sumpool.studies.collage.experiment",
    ),
    "zero-shot-loss": Study(
        "variants of the zero-shot loss on collages: when it helps, when it hurts",
        "78 trainings of glyphs, 40 minutes on two cores, or of CIFAR collages (--data)",
        "sumpool.studies.zero_shot_loss.experiment",
    ),
    "components": Study(
        "generalized sum pooling and the zero-shot loss, each on and off",
        "24 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.components",
    ),
    "share": Study(
        "the share μ of an image that is pooled",
        "42 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.share",
    ),
    "prototypes": Study(
        "number of prototypes × inverse smoothing ε",
        "120 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.prototypes",
    ),
    "screening": Study(
        "main effects of prototypes, μ, ε and λ, from half of a two-level factorial",
        "48 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.screening",
    ),
    "prediction": Study(
        "whether attributes of some classes predict others, with and without the zero-shot loss",
        "12 trainings of 2000 steps: minutes on a GPU; needs CIFAR-10 or CIFAR-100 (--data)",
        "sumpool.studies.prediction.experiment",
    ),
    "ccp-plane": Study(
        "chance-constrained proxies in 2-D: whether proxies stay apart and cover their classes",
        "about 4 minutes on two cores; 6 trainings of a ResNet with MNIST's files (--data)",
        "sumpool.studies.ccp_plane.experiment",
    ),
    "ccp-geometry": Study(
        "one proxy problem against alternating ones: covering radius and distance of new classes",
        "6 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.ccp_geometry.experiment",
    ),
    "ccp-search": Study(
        "pull λ and number of proxies by Bayesian search (needs sumpool[search])",
        "24 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.ccp_search.experiment",
    ),
    "ccp-pool": Study(
        "number of proxies × images that new ones are picked among",
        "36 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.ccp_pool",
    ),
    "ccp-problems": Study(
        "base loss, one proxy problem and alternating ones, for four losses",
        "36 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.ccp_problems",
    ),
    "ccp-batch": Study(
        "batch size with and without chance-constrained proxies",
        "24 trainings: of glyphs or, with --data, of CIFAR collages or CUB",
        "sumpool.studies.grids.ccp_batch",
    ),
    "ccp-settings": Study(
        "which settings chance-constrained proxies need, with C2 and MS",
        "90 trainings: of glyphs or, with --data, of CIFAR collages; 96 of CUB",
        "sumpool.studies.ccp_settings.experiment",
    ),
    "centers": Study(
        "regularisers of class centres beside proxy losses: how evenly centres lie, retrieval",
        "42 trainings of glyphs, half an hour on two cores; 114 of CIFAR collages or CUB (--data)",
        "sumpool.studies.centers.experiment",
    ),
    "averaging": Study(
        "what average pooling does: prototypes that cover local features, hulls of classes",
        "6 trainings of glyphs, about 5 minutes on two cores, or (--data) of CIFAR-10 or CIFAR-100",
        "sumpool.studies.averaging.experiment",
    ),
    "cost": Study(
        "time and memory of a pooling step against iterations: autodiff, closed form, exact",
        "about half a minute",
        "sumpool.studies.cost.experiment",
    ),
}


def get_study(name: str) -> Study:
    """The study called ``name``.

    Raises:
        ValueError: If there is none; the message lists the choices.
    """
    if name not in STUDIES:
        raise ValueError(f"study must be one of {', '.join(STUDIES)}, got {name!r}")
    return STUDIES[name]


__all__ = ["OPTIONS", "STUDIES", "RunStudy", "Study", "get_study"]
