"""An embedder is its parts in a row, and keeps its statistics, its seeds and its precision."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from models.tiny import GSP, LAYOUTS, config, embedder, images, pictures
from sumpool import Pooled
from sumpool.data import BrokenImageError, ImageFolder, open_feed
from sumpool.evaluation import embed_images
from sumpool.models import build_embedder
from sumpool.models.head import ORTHOGONAL_GAIN, keep_principal_axes
from sumpool.pooling import POOLINGS, pooling_class

#: Poolings with the map before, after and inside, and one that needs maps.
ONE_OF_EACH = ("gsp", "gmp", "netvlad", "cbam")
#: Poolings of mapped features whose weights are those of whole features, not of parts of them.
MAPPED_FIRST = sorted(
    name for name in POOLINGS if pooling_class(name).linear_map == "before" and name != "gsp-heads"
)


@pytest.mark.parametrize(
    ("case", "pooling"),
    [
        ("maps", "gsp-parts"),
        *((case, name) for case in sorted(LAYOUTS) for name in ONE_OF_EACH),
    ],
)
def test_the_map_stands_where_the_pooling_wants_it(case: str, pooling: str) -> None:
    values, (kind, _, _) = LAYOUTS[case]
    if kind == "NLC" and POOLINGS[pooling][1] is None:
        with pytest.raises(ValueError, match=f"pooling '{pooling}' needs maps"):
            embedder(**values, pooling=pooling)
        return
    model = embedder(**values, pooling=pooling).eval()
    x = images(model)
    out, local = model(x, details=True), model.backbone(x)
    place = pooling_class(pooling, sequence=kind == "NLC").linear_map
    pooled = model.pooling.pool(model.map(local) if place == "before" else local)
    expected = model.map(pooled.embedding) if place == "after" else pooled.embedding
    torch.testing.assert_close(out.embedding, F.normalize(expected, dim=-1))
    torch.testing.assert_close(model(x), out.embedding)
    assert out.embedding.shape == (3, 8)
    assert (sum(it.numel() for it in model.map.parameters()) == 0) == (place == "inside")


@pytest.mark.parametrize("case", sorted(LAYOUTS))
@pytest.mark.parametrize("pooling", MAPPED_FIRST)
def test_an_embedding_is_the_weighted_sum_of_mapped_features(case: str, pooling: str) -> None:
    values, (kind, _, prefix) = LAYOUTS[case]
    model = embedder(**values, pooling=pooling).eval()
    x = images(model)
    out = model(x, details=True)
    local = model.backbone(x)
    if kind == "NCHW":
        local = local.flatten(2).mT
    local = local.reshape(3, -1, local.shape[-1])[:, prefix:]  # (B, n, C)
    local = local @ model.map.weight.reshape(8, -1).T  # (B, n, D), no bias
    weights = out.weights.flatten(1)
    assert weights.shape == local.shape[:2]
    torch.testing.assert_close(weights.sum(1), torch.ones(3))
    expected = (weights.unsqueeze(-1) * local).sum(1)
    expected = expected / expected.norm(dim=1, keepdim=True)
    torch.testing.assert_close(out.embedding, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(x), out.embedding)
    assert out.embedding.shape == (3, 8)
    assert sum(it.numel() for it in model.map.parameters()) == model.layout.channels * 8


def test_details_are_those_of_the_pooling() -> None:
    model = embedder().eval()
    x = images(model)
    out, pooled = model(x, details=True), model.pooling.pool(model.feature_map(x))
    assert isinstance(out, Pooled)
    assert torch.equal(out.weights, pooled.weights)
    assert torch.equal(out.attributes, pooled.attributes)
    assert out.weights.shape == (3, 8, 8)
    assert out.attributes.shape == (3, 4)
    assert embedder(pooling="gap").eval()(x, details=True).attributes is None


def test_ball_normalization_shortens_only_long_vectors() -> None:
    model = embedder(normalize="ball").eval()
    x = images(model)
    short = model.pooling(model.feature_map(x))
    model.map.weight.data /= 2 * short.norm(dim=1).max()
    pooled = model.pooling(model.feature_map(x))
    assert (pooled.norm(dim=1) < 1).all()
    torch.testing.assert_close(model(x), pooled)
    model.map.weight.data *= 1000
    torch.testing.assert_close(model(x).norm(dim=1), torch.ones(3))


def test_an_image_of_nothing_has_an_embedding_and_a_gradient() -> None:
    model = embedder().eval()
    nn.init.zeros_(model.map.weight)
    out = model(images(model))
    assert (out == 0).all()
    out.sum().backward()
    assert all(it.grad.isfinite().all() for it in model.parameters() if it.grad is not None)


def test_unknown_poolings_and_options_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pooling must be one of \[.*'gap'.*got 'sum'"):
        embedder(pooling="sum")
    with pytest.raises(ValueError, match=r"'gsp' must be among .*got \['nu'\]"):
        embedder(pooling_options={"nu": 1})


# Batch normalization


def pretrained(tmp_path: Any, **values: Any) -> nn.Module:
    """An embedder whose backbone comes from a file, with statistics unlike those of a batch."""
    source = embedder().backbone.state_dict()
    for name in source:
        if name.endswith("running_mean"):
            source[name] = torch.randn(source[name].shape)
    torch.save(source, tmp_path / "resnet20.pth")
    return embedder(weights=str(tmp_path / "resnet20.pth"), **values)


def test_frozen_statistics_stay_and_their_scales_learn(tmp_path: Any) -> None:
    model = pretrained(tmp_path).train()
    assert model.frozen_batch_norms == 19
    norms = [it for it in model.modules() if isinstance(it, nn.BatchNorm2d)]
    before = [it.running_mean.clone() for it in norms]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = images(model)
    expected = model.eval()(x)
    torch.testing.assert_close(model.train()(x), expected)
    model(x)[:, 0].sum().backward()
    scales = [it.weight.detach().clone() for it in norms]
    optimizer.step()
    assert model.training
    assert model.backbone.training
    assert not any(it.training for it in norms)
    assert all(torch.equal(it.running_mean, old) for it, old in zip(norms, before, strict=True))
    assert all((it.weight != old).any() for it, old in zip(norms, scales, strict=True))


def test_frozen_scales_and_shifts_stay(tmp_path: Any) -> None:
    model = pretrained(tmp_path, freeze_batch_norm_affine=True).train()
    norms = [it for it in model.modules() if isinstance(it, nn.BatchNorm2d)]
    assert len(norms) == 19
    model(images(model))[:, 0].sum().backward()
    for norm in norms:
        assert norm.weight.grad is None
        assert norm.bias.grad is None
    assert model.backbone.conv1.weight.grad is not None


@pytest.mark.parametrize("map_init", ["torch", "orthogonal"])
@pytest.mark.parametrize("pooling", ["gsp", "gsp-keys", "simpool", "delf", "cbam", "gsop", "solar"])
def test_for_one_seed_all_poolings_start_from_the_same_map(pooling: str, map_init: str) -> None:
    expected, found = (
        build_embedder(config(pooling=name, map_init=map_init), seed=3).map.weight.flatten(1)
        for name in ("gap", pooling)
    )
    assert torch.equal(expected, found)
    other = build_embedder(config(pooling=pooling, map_init=map_init), seed=4).map.weight
    assert not torch.equal(found, other.flatten(1))


@pytest.mark.parametrize("pooling", ["gap", "gmp", "gsp", "gmp+gsp"])
def test_glorots_map_is_uniform_in_its_bounds(pooling: str) -> None:
    model = embedder(pooling=pooling, map_init="glorot")
    weight = (model.pooling if "+" in pooling else model).map.weight.flatten(1)
    bound = (6 / sum(weight.shape)) ** 0.5
    assert 0.95 * bound < float(weight.detach().abs().max()) <= bound
    again = embedder(pooling=pooling, map_init="glorot")
    assert torch.equal(weight, (again.pooling if "+" in pooling else again).map.weight.flatten(1))
    assert not torch.equal(weight[0, :4], embedder(pooling="gap").map.weight.flatten(1)[0, :4])


@pytest.mark.parametrize("pooling", ["gap", "gemean", "gsp", "gmp+gsp"])
def test_an_orthogonal_map_keeps_angles_and_the_size_of_steps(pooling: str) -> None:
    model = embedder(pooling=pooling, map_init="orthogonal")
    weight = (model.pooling if "+" in pooling else model).map.weight.detach().flatten(1)
    gram = weight @ weight.T if len(weight) <= weight.shape[1] else weight.T @ weight
    torch.testing.assert_close(gram, torch.eye(len(gram)) / 3, rtol=1e-4, atol=1e-5)
    uniform = embedder(pooling="gap").map.weight.detach()
    assert float(weight.norm() / uniform.norm()) == pytest.approx(1, rel=0.1)


def kept(layer: nn.Linear | nn.Conv2d, vectors: Tensor) -> float:
    """Share of the squared length of unit vectors that a map with orthogonal rows keeps."""
    unit = F.normalize(vectors.double(), dim=-1)
    mapped = unit @ (layer.weight.detach().double().flatten(1) / ORTHOGONAL_GAIN).T
    return float(mapped.square().sum() / len(unit))


@pytest.mark.parametrize("count", [5, 8, 40])
def test_principal_axes_keep_most_of_the_vectors(count: int) -> None:
    torch.manual_seed(count)
    layer = nn.Linear(12, 8, bias=False)
    nn.init.orthogonal_(layer.weight, ORTHOGONAL_GAIN)
    vectors = torch.randn(count, 12) * torch.linspace(1, 3, 12)
    before = kept(layer, vectors)
    keep_principal_axes(layer, vectors)
    rows = layer.weight.detach()
    torch.testing.assert_close(rows @ rows.T, torch.eye(8) / 3, rtol=1e-4, atol=1e-5)
    unit = F.normalize(vectors.double(), dim=-1)
    best = torch.linalg.eigvalsh(unit.T @ unit)[-8:].sum() / count
    assert before < kept(layer, vectors) == pytest.approx(float(best), abs=1e-6)
    if count <= 8:  # there is room for all of them
        assert kept(layer, vectors) == pytest.approx(1, abs=1e-6)


def test_a_map_that_loses_nothing_stays() -> None:
    layer = nn.Conv2d(4, 6, 1, bias=False)
    before = layer.weight.detach().clone()
    keep_principal_axes(layer, torch.randn(9, 4))
    assert torch.equal(layer.weight, before)


def test_statistics_learn_where_they_are_not_frozen(tmp_path: Any) -> None:
    model = pretrained(tmp_path, freeze_batch_norm=False).train()
    assert model.frozen_batch_norms == 0
    before = model.backbone.bn1.running_mean.clone()
    model(images(model))
    assert (model.backbone.bn1.running_mean != before).any()


def test_a_backbone_without_weights_has_no_statistics_to_keep() -> None:
    model = embedder(weights="none", freeze_batch_norm=True).train()
    assert model.frozen_batch_norms == 0
    assert all(it.training for it in model.modules())
    assert "frozen_batch_norms=0" in repr(model)


# Seeds


def test_the_seed_decides_and_nothing_else_is_disturbed() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, torch_after = embedder(seed=3), torch.get_rng_state()
    assert torch.equal(torch_after, before)
    torch.manual_seed(6)
    same, other = embedder(seed=3), embedder(seed=4)
    for name, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[name]), name
    assert not torch.equal(one.map.weight, other.map.weight)
    assert not torch.equal(one.pooling.prototypes, other.pooling.prototypes)


def test_the_map_does_not_depend_on_where_weights_come_from(tmp_path: Any) -> None:
    assert torch.equal(pretrained(tmp_path).map.weight, embedder().map.weight)


def test_the_pooling_can_have_a_seed_of_its_own() -> None:
    model = embedder(seed=3, pooling_options={**GSP, "seed": 9})
    assert model.pooling.seed == 9
    assert embedder(seed=3).pooling.seed == 3


# Precision, compilation, processes


@pytest.mark.parametrize("pooling", ONE_OF_EACH)
def test_under_autocast_pooling_and_normalization_are_in_float32(pooling: str) -> None:
    model = embedder(pooling=pooling).eval()
    x = images(model)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.backbone(x).dtype == torch.bfloat16
        features = model.feature_map(x)
        out = model(x, details=True)
        plain = model(x)
    assert features.dtype == out.embedding.dtype == torch.float32
    # What comes after the features is as exact as without autocast.
    pooled = model.pooling.pool(features)
    last = model.map if model.pooling.linear_map == "after" else nn.Identity()
    torch.testing.assert_close(out.embedding, F.normalize(last(pooled.embedding), dim=-1))
    if out.weights is not None:
        assert out.weights.dtype == torch.float32
        torch.testing.assert_close(out.weights, pooled.weights)
    torch.testing.assert_close(plain, out.embedding)
    torch.testing.assert_close(out.embedding.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(out.embedding, model(x), rtol=0, atol=0.05)


def test_a_model_in_half_precision_gives_unit_vectors() -> None:
    model = embedder().eval().bfloat16()
    out = model(images(model).bfloat16())
    assert out.dtype == torch.float32
    torch.testing.assert_close(out.norm(dim=1), torch.ones(3))


@pytest.mark.process
@pytest.mark.parametrize(
    ("case", "pooling"),
    [
        ("maps", "gap"),
        ("maps", "gsp"),
        ("tokens", "gsp"),
    ],
)
def test_a_model_compiles_whole(case: str, pooling: str) -> None:
    values, _ = LAYOUTS[case]
    if case == "maps":
        values = {**values, "backbone_options": {"blocks": 1}}
    model = embedder(**values, pooling=pooling)
    x = images(model)

    def gradients(run: Any) -> list[torch.Tensor]:
        out = run(x)
        return [out, *torch.autograd.grad(out.square()[:, 0].sum(), list(model.parameters()))]

    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for got, expected in zip(gradients(compiled), gradients(model), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5)
    torch._dynamo.reset()


@pytest.mark.parametrize("case", sorted(LAYOUTS))
def test_every_parameter_takes_part(case: str) -> None:
    # Processes that train together wait for the gradient of each.
    values, _ = LAYOUTS[case]
    model = embedder(**values).train()
    model(images(model)).square()[:, 0].sum().backward()
    assert [name for name, it in model.named_parameters() if it.grad is None] == []


def test_prototypes_are_set_by_the_first_training_batch_alone() -> None:
    model = embedder(pooling_options={"prototypes": 4})
    x = images(model)
    model.eval()(x)
    assert not model.pooling.prototypes_ready
    model.train()(x)
    assert model.pooling.prototypes_ready
    before = model.pooling.prototypes.detach().clone()
    model(x + 1)
    assert torch.equal(model.pooling.prototypes, before)


# Images


def test_pictures_are_embedded_as_the_test_view_shows_them() -> None:
    model = embedder().train()
    found = model.embed(pictures((50, 40), (32, 32), (20, 90)), batch_size=2)
    assert model.training
    assert not found.requires_grad
    view = model.preprocessing
    pixels = torch.stack([view.test_view()(it) for it in pictures((50, 40), (32, 32), (20, 90))])
    torch.testing.assert_close(found, model.eval()(view.normalize(pixels)))


def test_pictures_of_any_mode_are_taken() -> None:
    model = embedder()
    (picture,) = pictures((40, 40))
    gray = picture.convert("L")
    found = model.embed([gray, gray.convert("RGB"), gray.convert("RGBA"), gray.convert("P")])
    torch.testing.assert_close(found, found[:1].expand(4, -1))


def messy_files(folder: Path) -> list[Path]:
    """One picture as files that a plain ``convert("RGB")`` gets wrong, each in a way of its own."""
    (picture,) = pictures((48, 36))
    picture = picture.resize((12, 9)).resize((48, 36))
    turned = Image.Exif()
    turned[0x0112] = 6
    clear = picture.convert("RGBA")
    clear.putalpha(picture.convert("L"))
    deep = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 200)
    files: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "turned.jpg": (picture, {"exif": turned}),
        "clear.png": (clear, {}),
        "palette.png": (picture.quantize(16), {"transparency": 3}),
        "animated.gif": (picture, {"save_all": True, "append_images": [picture.rotate(90)]}),
        "deep.png": (deep, {}),
        "cmyk.jpg": (picture.convert("CMYK"), {}),
        "gray.png": (picture.convert("L"), {}),
        "gray-clear.png": (clear.convert("LA"), {}),
    }
    for name, (image, options) in files.items():
        image.save(folder / name, **options)
    return [folder / name for name in sorted(files)]


def test_an_image_gives_the_same_vector_through_every_entry(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = messy_files(tmp_path / "a")
    model = embedder().eval()
    feed = open_feed(ImageFolder(tmp_path), model.preprocessing, workers=0)
    expected = embed_images(model, feed).vectors  # what the command line does
    torch.testing.assert_close(model.embed(files), expected)
    torch.testing.assert_close(model.embed(str(it) for it in files), expected)
    with ExitStack() as stack:
        opened = [stack.enter_context(Image.open(it)) for it in files]
        torch.testing.assert_close(model.embed(opened), expected)
    for file, vector in zip(files, expected, strict=True):
        with Image.open(file) as opened_one:
            for one in (file, str(file), opened_one):
                torch.testing.assert_close(model.embed(one), vector[None])


def test_an_image_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    model = embedder()
    with pytest.raises(BrokenImageError, match=r"cannot read the image .*none\.png: No such file"):
        model.embed(tmp_path / "none.png")
    file = tmp_path / "cut.png"
    pictures((40, 40))[0].save(file)
    file.write_bytes(file.read_bytes()[:300])
    with (
        Image.open(file) as cut,
        pytest.raises(BrokenImageError, match=r"cannot read the image .*cut\.png: "),
    ):
        model.embed([cut])
    with pytest.raises(BrokenImageError, match=r"of mode F, 4×3 pixels: pixels are floating"):
        model.embed(Image.new("F", (4, 3)))


def test_arrays_are_images_too() -> None:
    model = embedder()
    drawn = pictures((40, 40), (40, 40))
    arrays = np.stack([np.asarray(it) for it in drawn])
    expected = model.encode(drawn)
    torch.testing.assert_close(model.encode(arrays), expected)
    torch.testing.assert_close(model.encode(arrays[0]), expected[:1])
    gray = np.asarray(drawn[0].convert("L"))
    torch.testing.assert_close(model.encode(gray), model.encode(drawn[0].convert("L")))
    alpha = np.concatenate([arrays[0], arrays[0, ..., :1]], -1)
    for wrong in (arrays.astype(np.float32), arrays[..., :2], alpha, arrays[0] / 255):
        with pytest.raises(ValueError, match=r"images must be paths .*got an array of"):
            model.encode(wrong)
    with pytest.raises(ValueError, match=r"got an array of float64 \(40, 40, 3\)"):
        model.encode(arrays[0] / 255)


def test_encoding_restores_the_mode_of_every_module() -> None:
    model = embedder().train()
    model.backbone.eval()
    model.encode(pictures((40, 40)))
    assert model.training
    assert not model.backbone.training


def test_progress_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    model = embedder()
    model.encode(pictures((40, 40)))
    assert capsys.readouterr().err == ""
    model.encode(pictures((40, 40)), progress=True)
    assert "encoding: 100%" in capsys.readouterr().err


def test_similarity_is_the_cosine_whatever_the_scale() -> None:
    model = embedder(normalize="ball")
    first, second = torch.randn(3, 8), torch.randn(2, 8)
    found = model.similarity(5 * first, second)
    assert found.shape == (3, 2)
    torch.testing.assert_close(found, torch.cosine_similarity(first[:, None], second, dim=-1))
    torch.testing.assert_close(model.similarity(first).diagonal(), torch.ones(3))


def test_what_is_no_image_is_refused() -> None:
    model = embedder()
    with pytest.raises(ValueError, match=r"images must be paths or PIL images, .*got none"):
        model.embed([])
    with pytest.raises(ValueError, match="got int among them"):
        model.embed([3])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        model.embed(pictures((40, 40)), batch_size=0)


def test_a_model_knows_what_it_was_built_from() -> None:
    model = build_embedder(config(), seed=11)
    assert model.config == config()
    assert model.seed == 11


@pytest.mark.process
def test_a_compiled_backbone_evaluates_as_before(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_sizes: list[int] = []

    def run(network: nn.Module, images: Tensor) -> Tensor:
        compiled_sizes.append(len(images))
        out: Tensor = network(images)
        return out

    monkeypatch.setattr("sumpool.models.embedder._compiled_run", lambda: run)
    model = pretrained(tmp_path).eval()
    x = torch.randn(5, 3, 32, 32)
    with torch.no_grad():
        expected = model(x)
    model.compile_backbone()
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected)
        torch.testing.assert_close(model(x[:2]), expected[:2])  # the last batch, say
        model.train()(x)
    model(x[:3])
    # In evaluation the first size, in training every size.
    assert compiled_sizes == [5, 3]
