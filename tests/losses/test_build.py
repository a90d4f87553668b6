"""The catalog, and what can be built from it."""

from __future__ import annotations

import io
import json
import math

import numpy as np
import pytest
import torch

from losses.batches import SIZE, embeddings_of, small_loss
from sumpool.losses import (
    COLUMNS,
    CONSTANTS,
    DATASET_COLUMNS,
    DEFAULT_COLUMN,
    LOSSES,
    WITHOUT_NORMALIZATION,
    build_loss,
)
from sumpool.losses.builders import BUILDERS

PROXY = [name for name, recipe in LOSSES.items() if recipe.proxy]


def test_every_recipe_can_be_built_and_has_all_columns() -> None:
    assert list(BUILDERS) == list(LOSSES)
    for name, recipe in LOSSES.items():
        assert recipe.name == name
        assert tuple(recipe.table) == COLUMNS
        assert len({tuple(constants) for constants in recipe.table.values()}) == 1
        for constants in recipe.table.values():
            assert all(CONSTANTS[it].admits(value) for it, value in constants.items())
        assert set(recipe.learning_rates) <= set(COLUMNS)


def test_proxy_losses_are_trained_in_their_own_way() -> None:
    assert set(PROXY) == {"panchor", "pnca", "softtriple", "proxynca"}
    for name, recipe in LOSSES.items():
        found = recipe.images_per_class, recipe.warmup_epochs, recipe.proxy_lr_multiplier
        factor = 100.0 if name == "margin" else 1.0
        assert found == ((1, 1, 100.0) if name in PROXY else (4, 0, factor))
        rates = {column: recipe.lr(column) for column in COLUMNS}
        if name == "libc":
            assert list(rates.values()) == [1.564e-4, 3.668e-4, 1.127e-4, 2.472e-4]
            continue
        assert rates == {**dict.fromkeys(COLUMNS), **({"sop": 5e-6} if name == "panchor" else {})}


@pytest.mark.parametrize("dataset", DATASET_COLUMNS)
def test_data_sets_without_constants_take_those_of_the_default_column(dataset: str) -> None:
    column = dataset if dataset in COLUMNS else DEFAULT_COLUMN
    assert LOSSES["c2"].constants(dataset) == LOSSES["c2"].table[column]
    loss = build_loss("c2", dataset=dataset, num_classes=3, embedding_size=4)
    assert loss.settings["dataset"] == dataset
    assert loss.settings["column"] == column


def test_constants_handed_out_are_a_copy() -> None:
    LOSSES["c2"].constants("cub")["neg_margin"] = 7.0
    assert LOSSES["c2"].constants("cub")["neg_margin"] == 0.3841


@pytest.mark.parametrize("name", LOSSES)
def test_settings_say_what_a_loss_was_built_from(name: str) -> None:
    loss = build_loss(name, dataset="sop", num_classes=7, embedding_size=8, batch_size=16, seed=3)
    assert json.loads(json.dumps(loss.settings)) == {
        "name": name,
        "dataset": "sop",
        "column": "sop",
        **LOSSES[name].constants("sop"),
        "num_classes": 7,
        "embedding_size": 8,
        "batch_size": 16,
        "seed": 3,
        "normalize": True,
    }
    assert f"name='{name}'" in repr(loss)


def test_overrides_replace_constants() -> None:
    x, y = embeddings_of([0, 0, 1, 1]), torch.tensor([0, 0, 1, 1])
    loss = small_loss("c2", dataset="cub", pos_margin=0.2652, neg_margin=0.5409)
    assert loss.settings["neg_margin"] == 0.5409
    assert torch.equal(loss(x, y), small_loss("c2", dataset="cars196")(x, y))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (
            {"name": "contrastive"},
            r"loss must be one of c1, c2, .*, circle, margin, libc, got 'contrastive'",
        ),
        ({"dataset": "cars"}, r"dataset must be one of cub, cars196, .*, got 'cars'"),
        ({"margin": 0.1}, r"c2 has no constant 'margin'; it has pos_margin, neg_margin, reduction"),
        ({"name": "npair", "margin": 0.1}, r"npair has no constant 'margin'; it has none"),
        ({"neg_margin": math.nan}, r"neg_margin of c2 must be a finite number, got nan"),
        ({"neg_margin": "0.5"}, r"neg_margin of c2 must be a finite number, got '0.5'"),
        ({"neg_margin": True}, r"neg_margin of c2 must be a finite number, got True"),
        ({"reduction": "mean"}, r"reduction of c2 must be 'nonzero-mean' or 'image-sum', got"),
        ({"name": "pnca", "temperature": 0}, r"temperature of pnca must be a positive number, got"),
        ({"name": "xbm", "memory_batches": 0}, r"must be an integer of at least 1, got 0"),
        ({"name": "xbm", "memory_batches": 2.0}, r"must be an integer of at least 1, got 2.0"),
        ({"name": "xbm", "start_step": -1}, r"must be an integer of at least 0, got -1"),
        ({"name": "xbm", "memory_weight": -1.0}, r"must be a number of at least 0, got -1.0"),
        ({"num_classes": 0}, r"num_classes must be an integer of at least 1, got 0"),
        ({"embedding_size": 2.0}, r"embedding_size must be an integer of at least 1, got 2.0"),
        ({"batch_size": -4}, r"batch_size must be an integer of at least 1, got -4"),
        ({"seed": -1}, r"seed must be an integer from 0 to 2\*\*64 - 1, got -1"),
        ({"name": "pnca", "seed": 0.5}, r"seed must be an integer from 0 to 2\*\*64 - 1, got 0.5"),
    ],
)
def test_what_cannot_be_built_is_refused(options: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        build_loss(**{"name": "c2", "num_classes": 3, "embedding_size": 4, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOSSES)
def test_proxy_parameters_are_all_that_is_learned(name: str) -> None:
    loss = small_loss(name)
    proxies = loss.proxy_parameters()
    assert len(proxies) == (1 if name in [*PROXY, "margin"] else 0)
    if name == "libc":  # which learns at the rate of the network
        return
    assert [id(it) for it in loss.parameters()] == [id(it) for it in proxies]


@pytest.mark.parametrize("name", [*PROXY, "libc"])
def test_building_leaves_random_states_alone(name: str) -> None:
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    small_loss(name)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(np.random.get_state(), numpy_state, strict=True)  # noqa: NPY002
    )


@pytest.mark.parametrize("name", PROXY)
def test_proxies_depend_on_the_seed_alone(name: str) -> None:
    options = {"num_classes": 50, "embedding_size": 40}
    first, second = (build_loss(name, **options).proxy_parameters()[0] for _ in range(2))
    assert torch.equal(first, second)
    other = build_loss(name, **options, seed=1).proxy_parameters()[0]
    assert not torch.equal(first, other)
    count = first.numel() // 40
    assert float(first.detach().std()) == pytest.approx(math.sqrt(2 / count), rel=0.05)
    assert abs(float(first.detach().mean())) < 0.1 * math.sqrt(2 / count)


def test_all_losses_with_one_proxy_per_class_start_from_the_same_ones() -> None:
    options = {"num_classes": 7, "embedding_size": SIZE}
    rows = build_loss("panchor", **options).proxy_parameters()[0]
    for name in ("pnca", "proxynca"):
        assert torch.equal(build_loss(name, **options).proxy_parameters()[0].T, rows)


@pytest.mark.parametrize("name", LOSSES)
def test_a_state_loads_without_pickled_objects(name: str) -> None:
    loss, other = (small_loss(name, seed=seed).float() for seed in (0, 1))
    x, y = embeddings_of([0, 0, 1, 1], dtype=torch.float32), torch.tensor([0, 0, 1, 1])
    loss(x, y)
    assert all(isinstance(it, torch.Tensor) for it in loss.state_dict().values())
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(5):
        assert torch.equal(loss(x, y), other(x, y))


@pytest.mark.parametrize("name", PROXY)
def test_training_resumes_bit_for_bit(name: str) -> None:
    labels = [0, 1, 2, 3, 4, 5]
    x, y = embeddings_of(labels, dtype=torch.float32), torch.tensor(labels)

    def train(loss: torch.nn.Module, adam: torch.optim.Adam, steps: int) -> None:
        for _ in range(steps):
            adam.zero_grad()
            loss(x, y).backward()
            adam.step()

    whole, begun, resumed = (small_loss(name, seed=seed).float() for seed in (0, 0, 1))
    adams = [torch.optim.Adam(it.parameters(), lr=0.01) for it in (whole, begun, resumed)]
    before = float(whole(x, y).detach())
    train(whole, adams[0], 6)
    assert float(whole(x, y).detach()) < before
    train(begun, adams[1], 3)
    resumed.load_state_dict(begun.state_dict())
    adams[2].load_state_dict(adams[1].state_dict())
    train(resumed, adams[2], 3)
    assert torch.equal(resumed.proxy_parameters()[0], whole.proxy_parameters()[0])


@pytest.mark.parametrize("name", LOSSES)
def test_losses_take_vectors_as_they_are_where_their_formula_lets_them(name: str) -> None:
    if name not in WITHOUT_NORMALIZATION:
        with pytest.raises(ValueError, match="normalize must be true with loss"):
            build_loss(name, num_classes=3, embedding_size=4, normalize=False)
        return
    taken = build_loss(name, num_classes=3, embedding_size=4, normalize=False)
    scaled = build_loss(name, num_classes=3, embedding_size=4)
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(8, 4, generator=generator), dim=1)
    y = torch.arange(8) // 2 % 3
    # On unit vectors they agree, and on others only one of them sees the length.
    assert torch.isclose(taken(x, y), scaled(x, y))
    assert torch.isclose(scaled(x / 2, y), scaled(x, y))
    assert not torch.isclose(taken(x / 2, y), taken(x, y))


@pytest.mark.parametrize("name", [name for name, it in LOSSES.items() if it.proxy])
def test_centers_are_the_proxies_by_class(name: str) -> None:
    loss = build_loss(name, num_classes=4, embedding_size=4, seed=1)
    (weights,) = loss.proxy_parameters()
    centers = loss.centers()
    assert centers.shape[0] == centers.shape[2] == 4
    rows = centers.flatten(0, 1)
    assert torch.equal(rows if name == "panchor" else rows.T, weights)
    # An embedding on a proxy of class 2 is closest to that class.
    found = [
        float(loss(rows[2 * centers.shape[1]][None].detach(), torch.tensor([c])).detach())
        for c in range(4)
    ]
    assert found.index(min(found)) == 2
    centers.sum().backward()
    assert weights.grad is not None


def test_pair_losses_have_no_centers() -> None:
    with pytest.raises(ValueError, match="the loss c2 has no proxies"):
        build_loss("c2", num_classes=4, embedding_size=4).centers()


def test_numbers_of_numpy_become_those_of_python() -> None:
    classes = np.array([0, 1, 2]).max() + 1
    loss = build_loss("c2", num_classes=classes, embedding_size=8, neg_margin=np.float32(0.5))
    assert json.loads(json.dumps(loss.settings))["num_classes"] == 3
    assert loss.settings["neg_margin"] == 0.5


def test_counts_of_any_size_are_compared() -> None:
    loss = build_loss("xbm", num_classes=3, embedding_size=8, start_step=10**400)
    assert loss.settings["start_step"] == 10**400
