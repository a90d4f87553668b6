"""Why two images match: heat maps sum to the similarity."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from sumpool.models import Embedder, EmbedderConfig, build_embedder
from sumpool.pooling import POOLINGS
from sumpool.search.contributions import can_explain
from sumpool.search.explain import explain_match
from sumpool.search.queries import QueryError, embed_query

EXPLAINED = (
    "cbam", "crow", "delf", "efficient-probing", "gap", "gap+gmp", "gemax", "gemean", "gemean+gsp",
    "gmp", "gmp+gsp", "gsp", "gsp-heads", "gsp-keys", "gsp-parts", "otp", "salad", "simpool",
    "t-smk", "weldon",
)  # fmt: skip
#: These have no weights, mix positions first, or follow a sum by more than a linear map.
CANNOT = ("attention", "boq", "compact-bilinear", "gsop", "netvlad", "solar")
BOX = (4, 6, 27, 30)


def picture(seed: int) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 255, (40, 36, 3), np.uint8)
    return Image.fromarray(pixels)


def model_of(pooling: str, normalize: str = "l2", **options: object) -> Embedder:
    config = EmbedderConfig(
        "small_cnn", "none", 16, pooling, dict(options), normalize, freeze_batch_norm=False
    )
    model = build_embedder(config, seed=3).eval()
    with torch.no_grad():  # map and attention as after training, not as they begin
        generator = torch.Generator().manual_seed(0)
        for parameter in model.pooling.parameters():
            if parameter.ndim > 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def test_every_pooling_explains_or_says_that_it_cannot() -> None:
    assert sorted((*EXPLAINED, *CANNOT)) == sorted(POOLINGS)


@pytest.mark.parametrize("normalize", ["l2", "ball"])
@pytest.mark.parametrize("pooling", EXPLAINED)
def test_heat_maps_sum_to_the_similarity(pooling: str, normalize: str) -> None:
    model = model_of(pooling, normalize)
    query, result = (embed_query(model, picture(seed)) for seed in (0, 1))
    why = explain_match(model, query, result)
    assert why.similarity == pytest.approx(float(query.vector @ result.vector), abs=1e-5)
    for heat in (why.query_map, why.result_map):
        assert heat.ndim == 2
        assert float(heat.sum(dtype=np.float64)) == pytest.approx(why.similarity, abs=1e-5)


@pytest.mark.parametrize("pooling", sorted(set(EXPLAINED) - {"cbam", "t-smk"}))
def test_heat_of_a_part_is_inside_it_and_sums_to_the_similarity(pooling: str) -> None:
    model = model_of(pooling)
    query, result = embed_query(model, picture(0), BOX), embed_query(model, picture(1))
    why = explain_match(model, query, result)
    assert query.mask is not None
    assert not query.mask.all()
    assert (why.query_map[~query.mask[0].numpy()] == 0).all()
    assert why.similarity == pytest.approx(float(query.vector @ result.vector), abs=1e-5)
    assert float(why.query_map.sum(dtype=np.float64)) == pytest.approx(why.similarity, abs=1e-5)


@pytest.mark.parametrize(
    ("pooling", "options"),
    [
        ("gemean+gsp", {"weigh": "powers"}),
        ("gemean+gsp", {"background": True}),
        ("gsp-keys", {"gamma": 1.0, "learn_gamma": False, "values": "normalized", "prototypes": 3}),
        ("gsp-keys", {"start": "random"}),
        ("gsp-keys", {"gamma": 1.0, "learn_gamma": False, "start": "random"}),
        ("gsp-parts", {"with_sum": True, "mix": 0.5}),
    ],
)
def test_options_of_a_pooling_keep_the_sum(pooling: str, options: dict[str, object]) -> None:
    model = model_of(pooling, **options)
    query, result = (embed_query(model, picture(seed)) for seed in (0, 1))
    why = explain_match(model, query, result)
    assert why.similarity == pytest.approx(float(query.vector @ result.vector), abs=1e-5)


@pytest.mark.parametrize("pooling", CANNOT)
def test_others_say_that_they_cannot(pooling: str) -> None:
    model = model_of(pooling, **({"clusters": 4} if pooling == "netvlad" else {}))
    assert not can_explain(model.pooling)
    query = embed_query(model, picture(0))
    with pytest.raises(
        QueryError, match=f"the pooling {pooling} is not a sum over positions"
    ) as it:
        explain_match(model, query, query)
    assert "\n" not in str(it.value)


@pytest.mark.parametrize("pooling", ["cbam", "t-smk", "gsop"])
def test_poolings_that_look_at_neighbors_refuse_a_part(pooling: str) -> None:
    with pytest.raises(QueryError, match="cannot search by part of an image"):
        embed_query(model_of(pooling), picture(0), BOX)
