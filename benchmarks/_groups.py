"""The groups of variants that are measured together, by section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import torch
from _variants import (
    GAP,
    GAP_AGAIN,
    Size,
    build_head,
    build_pool,
    maybe_compiled,
    random_maps,
    variants,
)
from torch import nn

from sumpool.studies.cost.step_timing import Step

SECTIONS = ("layer", "resnet", "alone", "growth")
DTYPES = {"float32": None, "bfloat16": torch.bfloat16}
SIZES = (
    Size(32, 1024, 7, 7, 128, 64),
    Size(112, 2048, 7, 7, 512, 128),
    Size(512, 1024, 7, 7, 128, 128),
    Size(64, 1024, 28, 28, 128, 64),
)
GROWTH = {
    "k": (1, 10, 25, 50, 100, 200, 400),
    "n": (7, 14, 28, 56),  # sides of the map
    "m": (16, 64, 256),
    "d": (64, 128, 256, 512),
}
QUICK_SIZES = (Size(2, 16, 4, 4, 8, 4),)
QUICK_GROWTH = {"k": (1, 4, 16), "n": (2, 4), "m": (2, 4), "d": (4, 8)}
#: Bytes of inputs and gradients used in rotation: twice the cache of the largest devices, so that a
#: step reads its input from memory, not from the cache.
ROTATED_BYTES = 120e6


@dataclass
class Group:
    """Variants that are timed in the same rounds.

    Attributes:
        section: The section it belongs to.
        size: Sizes of the problem.
        names: Variants, in the order of a round.
        dtype: A key of DTYPES.
        build: Builds the step of a variant.
        axis: Letter of the size that grows, in the growth section.
        model: Name of the backbone, in the resnet section.
        longer: Factor on the usual length of turns, to resolve small differences.
    """

    section: str
    size: Size
    names: list[str]
    dtype: str
    build: Callable[[str], Step]
    axis: str | None = None
    model: str | None = None
    longer: int = 1

    def __str__(self) -> str:
        return f"{self.section} {self.axis or ''} {self.dtype} {self.size}"


@dataclass(frozen=True)
class Plan:
    """What to measure, and where.

    Attributes:
        device: Device to run on.
        sections: Some of SECTIONS.
        dtypes: Some of DTYPES; the growth section uses the first.
        quick: Whether to use tiny sizes, as a smoke test.
        compile: "none", "some" (the first two sizes of the first dtype) or "all".
        channels_last: Whether maps have the channels_last layout.
        most_sizes: Number of sizes to measure, from the first.
        only: Variants to measure besides average pooling; None for all.
    """

    device: torch.device
    sections: list[str]
    dtypes: list[str]
    quick: bool = False
    compile: str = "some"
    channels_last: bool = False
    most_sizes: int = len(SIZES)
    only: frozenset[str] | None = None

    @property
    def cuda(self) -> bool:
        """Whether the fused kernels and graphs can run."""
        return self.device.type == "cuda"

    @property
    def sizes(self) -> tuple[Size, ...]:
        """Sizes of the sections layer and alone; growth starts from the first."""
        return (QUICK_SIZES if self.quick else SIZES)[: self.most_sizes]

    @property
    def growth(self) -> dict[str, tuple[int, ...]]:
        """Values of each size that grows, by its letter."""
        return QUICK_GROWTH if self.quick else GROWTH

    @property
    def iterations(self) -> tuple[int, ...]:
        """The k of iterative-k and autodiff-k."""
        return (2, 4) if self.quick else (25, 100)


def groups_of(plan: Plan) -> Iterator[Group]:
    """Yield the groups of the requested sections, in the order of SECTIONS."""
    makers = {"layer": layer, "resnet": resnet, "alone": alone, "growth": growth}
    for section in SECTIONS:
        if section in plan.sections:
            for group in makers[section](plan):
                if plan.only is not None:
                    kept = plan.only | {GAP, GAP_AGAIN}
                    group.names = [name for name in group.names if name in kept]
                yield group


def layer(plan: Plan) -> Iterator[Group]:
    for dtype in plan.dtypes:
        for i, size in enumerate(plan.sizes):
            some = plan.compile == "some" and i < 2 and dtype == plan.dtypes[0]
            names = variants(
                plan.iterations,
                cuda=plan.cuda,
                compiled=some or plan.compile == "all",
                keys=True,
            )
            build = head_builder(plan, size, dtype, with_map=True)
            yield Group("layer", size, names, dtype, build)


def alone(plan: Plan) -> Iterator[Group]:
    for dtype in plan.dtypes:
        for size in plan.sizes:
            names = variants(plan.iterations, cuda=plan.cuda, compiled=False, printed=True)
            build = head_builder(plan, size, dtype, with_map=False)
            yield Group("alone", size, names, dtype, build)


def growth(plan: Plan) -> Iterator[Group]:
    base, dtype = plan.sizes[0], plan.dtypes[0]
    for axis, values in plan.growth.items():
        iterations = values if axis == "k" else plan.iterations[-1:]
        names = variants(iterations, cuda=plan.cuda, compiled=False, linear=False)
        for value in (0,) if axis == "k" else values:
            grown = {"k": {}, "n": {"h": value, "w": value}}.get(axis, {axis: value})
            size = Size(**{**asdict(base), **grown})
            build = head_builder(plan, size, dtype, with_map=False)
            yield Group("growth", size, names, dtype, build, axis=axis)


def head_builder(plan: Plan, size: Size, dtype: str, *, with_map: bool) -> Callable[[str], Step]:
    """Return a builder for the steps of one group, which share inputs drawn with the first."""
    channels = size.C if with_map else size.d
    # Without the map, features are in the cache if they fit, as they would be after it.
    autocast = DTYPES[dtype]
    item = 4 if autocast is None else 2
    one = 2 * item * size.B * channels * size.h * size.w
    rotated = with_map and plan.cuda
    sets = min(10, max(2, round(ROTATED_BYTES / one))) if rotated else 2
    inputs: list[torch.Tensor] = []

    def build(name: str) -> Step:
        if not inputs:
            shape = (size.B, channels, size.h, size.w)
            torch.manual_seed(1)
            inputs.extend(
                random_maps(shape, sets, plan.device, autocast or torch.float32, plan.channels_last)
            )
        module = build_head(name, size) if with_map else build_pool(name, size.d, size.m)
        module = maybe_compiled(name, module.to(plan.device))
        return Step(module, inputs, autocast)

    return build


def resnet(plan: Plan) -> Iterator[Group]:
    dtype = "bfloat16" if plan.cuda else "float32"
    model, side, size = "resnet50", 227, Size(32, 2048, 8, 8, 128, 64)
    if plan.quick:
        model, side, size = "test_resnet", 64, Size(2, 96, 2, 2, 8, 4)
    inputs: list[torch.Tensor] = []

    def build(name: str) -> Step:
        import timm

        torch.manual_seed(0)
        backbone: nn.Module = timm.create_model(model, num_classes=0, global_pool="")
        module = nn.Sequential(backbone, build_head(name, size)).to(plan.device).train()
        layout = torch.channels_last if plan.channels_last else torch.contiguous_format
        module = module.to(memory_format=layout)
        if not inputs:
            x = torch.randn(size.B, 3, side, side, device=plan.device)
            inputs.append(x.contiguous(memory_format=layout))
        # A rate of 0 keeps random weights on random images from diverging; the work is the same.
        return Step(
            module,
            inputs,
            DTYPES[dtype],
            lambda parameters: torch.optim.SGD(parameters, lr=0.0, momentum=0.9),
        )

    names = [GAP, "exact", "keys", f"iterative-{plan.iterations[-1]}", GAP_AGAIN]
    if plan.cuda:
        names[2:2] = ["fused", "keys-fused"]
    yield Group("resnet", size, names, dtype, build, model=model, longer=10)
