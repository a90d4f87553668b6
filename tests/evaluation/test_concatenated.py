"""All combinations at once give what each concatenation gives on its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from evaluation.ranking_oracle import naive_metrics, ranked
from sumpool.evaluation import retrieval_metrics
from sumpool.evaluation.concatenated import metrics
from sumpool.evaluation.concatenated.metrics import concatenated_metrics
from sumpool.evaluation.concatenated.pairs import unit_parts

GROUPS = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def related(n: int, d: int, models: int = 12, noise: float = 0.3) -> list[Tensor]:
    """Models that see nearly the same."""
    base = drawn(n, d, seed=1)
    return [base + noise * drawn(n, d, seed=2 + model) for model in range(models)]


def unrelated(n: int, d: int) -> list[Tensor]:
    return [drawn(n, d, seed=50 + model) for model in range(12)]


#: Embeddings of n images, (n, d) for each of 12 models, none of them of length 1.
WORLDS: dict[str, Callable[[int], list[Tensor]]] = {
    "related": lambda n: related(n, 8),
    "unrelated": lambda n: unrelated(n, 4),
    "copies": lambda n: [it[: n // 5].repeat(6, 1)[:n] for it in related(n, 8)],
    "many ties": lambda n: [it.round() for it in unrelated(n, 2)],
    "collapsed": lambda n: [drawn(1, 4, seed=1).repeat(n, 1) for _ in range(12)],
    "one collapsed": lambda n: [torch.ones(n, 4), *related(n, 4, 11)],
    "nearly collapsed": lambda n: [1 + 1e-4 * it for it in related(n, 4)],
    "zeros": lambda n: [
        torch.where(torch.arange(n)[:, None] % 3 > 0, it, 0) for it in related(n, 4)
    ],
    "far lengths": lambda n: [it * 10.0**place for place, it in enumerate(related(n, 4))],
    "one dimension": lambda n: unrelated(n, 1),
    "double precision": lambda n: [it.double() for it in related(n, 8)],
}


def compare(
    query: list[Tensor],
    labels: Tensor,
    gallery: list[Tensor] | None = None,
    classes: Tensor | None = None,
    ks: tuple[int, ...] = (1, 2, 4),
    groups: list[list[int]] = GROUPS,
    **options: int,
) -> None:
    """Against the metrics of concatenations on their own, every fourth of them."""
    found = concatenated_metrics(query, labels, gallery, classes, groups=groups, ks=ks, **options)
    parts = unit_parts("query", query)
    others = None if gallery is None else unit_parts("gallery", gallery)
    combinations = list(product(*groups))
    assert all(len(values) == len(combinations) for values in found.values())
    for place, chosen in list(enumerate(combinations))[::4]:
        x = torch.cat([parts[it] for it in chosen], 1)
        y = None if others is None else torch.cat([others[it] for it in chosen], 1)
        truth = retrieval_metrics(x, labels, y, classes, ks=ks)
        got = {name: float(values[place]) for name, values in found.items()}
        assert got == pytest.approx({name: truth[name] for name in got}, abs=1e-12), chosen


@pytest.mark.parametrize("name", WORLDS)
def test_every_combination_is_as_on_its_own(name: str) -> None:
    compare(WORLDS[name](60), torch.arange(60) % 7)


@pytest.mark.parametrize("name", ["related", "copies", "many ties"])
def test_every_combination_is_as_plain_loops_have_it(name: str) -> None:
    """The oracle knows no rounding, and nothing of the code that is tested."""
    world = WORLDS[name](24)
    labels = torch.arange(24) % 5
    found = concatenated_metrics(world, labels, groups=GROUPS, ks=(1, 2))
    parts = []
    for it in world:
        length = it.double().square().sum(1, keepdim=True).sqrt()
        parts.append((it.double() / length.clamp(min=1e-30)).float())
    for place, chosen in enumerate(product(*GROUPS)):
        if place % 8 == 0:
            x = torch.cat([parts[it] for it in chosen], 1)
            truth = naive_metrics(ranked(x, x, own=True), labels, labels, (1, 2))
            for metric, values in found.items():
                assert float(values[place]) == pytest.approx(truth[metric], abs=1e-12)


@pytest.mark.parametrize("name", ["related", "unrelated", "many ties"])
def test_a_gallery_of_its_own_is_searched(name: str) -> None:
    world = WORLDS[name](90)
    query, gallery = [it[:30] for it in world], [it[30:] for it in world]
    # Class 8 is not in the gallery: its queries are left out.
    compare(query, torch.arange(30) % 9, gallery, torch.arange(60) % 8)


@pytest.mark.parametrize("name", ["related", "unrelated", "copies", "many ties", "collapsed"])
def test_many_matches_are_ranked_in_double_precision(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "_SEARCHED", 9)
    compare(WORLDS[name](60), torch.cat([torch.arange(30) % 2, torch.arange(30) % 6]))


@pytest.mark.parametrize("memory", [1, 20_000])
def test_memory_changes_nothing(memory: int) -> None:
    groups = [[0, 1], [2, 3], [4, 5]]
    compare(WORLDS["related"](24), torch.arange(24) % 6, groups=groups, max_memory=memory)


def test_copies_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sumpool.evaluation.concatenated.pairs._MANY", 1)
    compare(WORLDS["copies"](60), torch.arange(60) % 7)
    compare(WORLDS["collapsed"](40), torch.arange(40) % 7)


@pytest.mark.parametrize("groups", [[[0, 1, 2]], [[0], [1]], [[0, 1], [2, 3], [4, 5]], [[3]]])
def test_any_number_of_groups_and_models_will_do(groups: list[list[int]]) -> None:
    compare(WORLDS["related"](40), torch.arange(40) % 6, groups=groups)


def test_the_length_of_a_part_does_not_count() -> None:
    world, labels = related(60, 8), torch.arange(60) % 7
    found = concatenated_metrics(world, labels, groups=GROUPS)
    world[4] = 1024 * world[4]
    scaled = concatenated_metrics(world, labels, groups=GROUPS)
    assert all(torch.equal(found[name], scaled[name]) for name in found)


def test_unusable_input_is_named() -> None:
    world, labels = related(20, 4), torch.arange(20) % 3
    with pytest.raises(ValueError, match="none of the 20 queries has a match"):
        concatenated_metrics(world, torch.arange(20), groups=GROUPS)
    with pytest.raises(ValueError, match="same shape for all models"):
        concatenated_metrics([*world[:-1], world[-1][:, :3]], labels, groups=GROUPS)
    with pytest.raises(ValueError, match="query must be finite"):
        concatenated_metrics([world[0] / 0, *world[1:]], labels, groups=GROUPS)
    for gallery, classes in ((world, None), (None, labels), (world, labels)):
        with pytest.raises(ValueError, match=r"gallery(_labels)? must be"):
            concatenated_metrics(world, labels, gallery, classes, groups=GROUPS)
    with pytest.raises(ValueError, match="ks must lie between 1 and the 19"):
        concatenated_metrics(world, labels, groups=GROUPS, ks=(20,))
