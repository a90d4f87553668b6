"""Gallery: the queries, weights and regions that are shown are the right ones."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from evaluation.shape_model import COLORS, GRID, SIDE, ColorModel, ShapeFeed, Shapes, TokenModel
from sumpool.evaluation import gallery as module
from sumpool.evaluation.gallery import collect_gallery
from sumpool.evaluation.gallery_map import flatten_to_plane
from sumpool.report.run.gallery import Gallery, Neighbor, Query
from sumpool.report.run.gallery_files import read_gallery
from sumpool.report.run.page import write_run_page

LABELS = [0, 1, 2, 3] * 5 + [0, 0, 1]


def embedded(model: Any, feed: ShapeFeed, indices: list[int] | None = None) -> Any:
    chosen = list(range(len(feed.dataset))) if indices is None else indices
    with torch.inference_mode():
        vectors = torch.cat([model(batch.images) for batch in feed.test_batches(chosen)])
    return SimpleNamespace(
        vectors=vectors, labels=feed.dataset.labels[chosen], indices=torch.tensor(chosen)
    )


def random_embeddings(labels: list[int], indices: list[int] | None = None, seed: int = 0) -> Any:
    drawn = torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(seed))
    return SimpleNamespace(
        vectors=torch.nn.functional.normalize(drawn, dim=1),
        labels=torch.tensor(labels),
        indices=torch.tensor(list(range(len(labels))) if indices is None else indices),
    )


def naive_average_precision(row: int, query: Any, gallery: Any, same: bool) -> float | None:
    scores = [
        (-float(query.vectors[row] @ gallery.vectors[other]), other)
        for other in range(len(gallery.vectors))
        if not (same and other == row)
    ]
    hits = [gallery.labels[other] == query.labels[row] for _, other in sorted(scores)]
    relevant = sum(map(bool, hits))
    if not relevant:
        return None
    found, total = 0, 0.0
    for rank, hit in enumerate(hits[:relevant], 1):
        found += bool(hit)
        total += found / rank if hit else 0
    return total / relevant


@pytest.fixture
def feed() -> ShapeFeed:
    return ShapeFeed(Shapes(LABELS))


@pytest.fixture
def shown(feed: ShapeFeed, tmp_path: Path) -> Gallery:
    model = ColorModel()
    return collect(model, feed, embedded(model, feed), tmp_path / "exhibits")


def collect(model: Any, feed: Any, embeddings: Any, folder: Path, **options: Any) -> Gallery:
    return collect_gallery(model, feed, embeddings, folder=folder, **options)


def test_a_query_never_retrieves_itself_among_equal_vectors(tmp_path: Path) -> None:
    labels = [0, 0, 0, 1, 1, 2]
    feed = ShapeFeed(Shapes(labels))
    found = random_embeddings(labels)
    found.vectors[:] = found.vectors[0]
    shown = collect(ColorModel(), feed, found, tmp_path / "x", neighbors=2)
    assert len(shown.sample) == 6
    for query in shown.sample:
        items = [hit.item for hit in query.neighbors]
        assert len(set(items)) == 2
        assert query.item not in items


def test_worst_queries_are_those_of_least_precision(feed: ShapeFeed, tmp_path: Path) -> None:
    found = random_embeddings(LABELS)
    shown = collect(ColorModel(), feed, found, tmp_path / "x", images=6, neighbors=3)
    expected = sorted(
        naive_average_precision(row, found, found, True) or 0.0 for row in range(len(LABELS))
    )
    scores = [query.average_precision for query in shown.worst]
    assert scores == pytest.approx(expected[:6], abs=1e-6)
    assert shown.queries == len(LABELS)
    for query in (*shown.worst, *shown.sample):
        row = index_of(query)
        assert query.class_name == list(COLORS)[LABELS[row]]
        assert query.relevant == LABELS.count(LABELS[row]) - 1
        assert len(query.neighbors) == 3
        near = found.vectors @ found.vectors[row]
        near[row] = -2
        best = near.topk(3)
        assert [index_of(hit) for hit in query.neighbors] == best.indices.tolist()
        likeness = [hit.similarity for hit in query.neighbors]
        assert likeness == pytest.approx(best.values.tolist(), abs=1e-5)
        for hit in query.neighbors:
            assert hit.right == (hit.class_name == query.class_name)


def test_a_query_without_match_is_never_among_the_worst(tmp_path: Path) -> None:
    labels = [0] * 4 + [1]
    feed = ShapeFeed(Shapes(labels))
    shown = collect(ColorModel(), feed, random_embeddings(labels), tmp_path / "x")
    assert {query.class_name for query in shown.worst} == {"red"}
    alone = [query for query in shown.sample if query.class_name == "green"]
    assert [query.average_precision for query in alone] == [None]
    assert len(alone[0].neighbors) == 4  # all there are


def test_exhibits_on_disk_are_those_returned(shown: Gallery, tmp_path: Path) -> None:
    read = read_gallery(tmp_path / "exhibits")
    assert read is not None
    assert read.worst == shown.worst
    assert read.prototypes == shown.prototypes
    assert set(read.images) == set(shown.images)


def test_the_sample_is_the_same_for_every_model(feed: ShapeFeed, tmp_path: Path) -> None:
    samples = []
    for seed, pool in enumerate(("gsp", "gap")):
        found = random_embeddings(LABELS, seed=seed)
        part = collect(ColorModel(pool), feed, found, tmp_path / pool, images=5)
        samples.append([query.item for query in part.sample])
    assert samples[0] == samples[1]
    assert len(set(samples[0])) == 5
    found = random_embeddings(LABELS)
    other = collect(ColorModel(), feed, found, tmp_path / "x", images=5, seed=1)
    assert [query.item for query in other.sample] != samples[0]


def test_weights_lie_where_the_shape_is(shown: Gallery, feed: ShapeFeed) -> None:
    queries = {query.image: query for query in (*shown.worst, *shown.sample)}
    assert shown.weights.keys() == queries.keys()
    for name, weights in shown.weights.items():
        assert weights.shape == (GRID, GRID)
        assert weights.mean() == pytest.approx(1, abs=1e-4)  # relative to an equal weight
        column, row = feed.dataset.centers[index_of(queries[name])]
        cell = SIDE // GRID
        assert weights[row // cell, column // cell] > 3
        seen = np.asarray(Image.open(io.BytesIO(shown.images[name]))).astype(int)
        color = list(COLORS.values())[LABELS[index_of(queries[name])]]
        assert np.abs(seen[row, column] - color).max() < 40  # the thumbnail is the same view


def index_of(shown: Query | Neighbor) -> int:
    return int(shown.item.removeprefix("shape-").removesuffix(".png"))


def test_a_prototype_is_fed_by_regions_of_its_color(shown: Gallery) -> None:
    assert shown.usage is not None
    assert shown.usage.sum() == pytest.approx(1, abs=1e-4)
    shares = [prototype.share for prototype in shown.prototypes]
    assert shares == pytest.approx(sorted(shown.usage.tolist(), reverse=True))
    for prototype in shown.prototypes:
        items = [region.item for region in prototype.regions]
        assert len(items) == len(set(items)) == 6
        weights = [region.weight for region in prototype.regions]
        assert weights == sorted(weights, reverse=True)
        own = LABELS.count(prototype.index)
        for region in prototype.regions[:own]:
            assert region.class_name == list(COLORS)[prototype.index]
            seen = np.asarray(Image.open(io.BytesIO(shown.images[region.image]))).astype(int)
            left, top, right, bottom = region.box
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
            height, width = seen.shape[:2]
            inside = seen[
                int(top * height) + 1 : int(bottom * height),
                int(left * width) + 1 : int(right * width),
            ]
            color = list(COLORS.values())[prototype.index]
            assert np.abs(inside.mean((0, 1)) - color).max() < 60


@pytest.mark.parametrize(("cell", "edge"), [((0, 0), "first"), ((7, 7), "last"), ((3, 4), "none")])
def test_a_region_lies_inside_the_image(cell: tuple[int, int], edge: str, feed: ShapeFeed) -> None:
    from sumpool.evaluation.gallery_images import Thumbnails

    thumbnails = Thumbnails(feed, "image")  # type: ignore[arg-type]
    name, box = thumbnails.cut(0, cell, (8, 8), "region")
    size = Image.open(io.BytesIO(thumbnails.files[name])).size
    assert size == (24, 24)
    assert box[2] - box[0] == pytest.approx(1 / 3)
    expected = {"first": 0, "last": 2 / 3, "none": 1 / 3}[edge]
    assert box[:2] == pytest.approx((expected, expected))


def test_average_pooling_has_equal_weights_and_no_prototypes(
    feed: ShapeFeed, tmp_path: Path
) -> None:
    shown = collect(ColorModel("gap"), feed, random_embeddings(LABELS), tmp_path / "x")
    assert all(np.allclose(weights, 1) for weights in shown.weights.values())
    assert shown.prototypes == ()
    assert shown.notes == ("The pooling has no prototypes.",)


def test_tokens_are_shown_where_they_form_a_square(feed: ShapeFeed, tmp_path: Path) -> None:
    found = random_embeddings(LABELS)
    maps = collect(ColorModel(), feed, found, tmp_path / "maps")
    tokens = collect(TokenModel(), feed, found, tmp_path / "tokens")
    assert tokens.notes == ()
    for name, weights in maps.weights.items():
        np.testing.assert_allclose(tokens.weights[name], weights)
    assert tokens.prototypes == maps.prototypes
    odd = collect(TokenModel(dropped=1), feed, found, tmp_path / "odd")
    assert odd.weights == {}
    assert odd.prototypes == ()
    assert odd.notes[0] == "The weights are not shown: their 63 positions form no square."


def test_query_and_gallery_may_be_different_images(tmp_path: Path) -> None:
    queries = ShapeFeed(Shapes([0, 1, 2, 3], seed=1))
    gallery = ShapeFeed(Shapes([0, 1, 1, 0, 3], seed=2))
    query = random_embeddings([0, 1, 2, 3])
    searched = random_embeddings([0, 1, 1, 0, 3], seed=1)
    shown = collect(
        ColorModel(),
        queries,
        query,
        tmp_path / "x",
        gallery_embeddings=searched,
        gallery_feed=gallery,
    )
    by_item = {item.item: item for item in shown.sample}
    assert by_item["shape-2.png"].average_precision is None
    for row, name in ((0, "shape-0.png"), (1, "shape-1.png"), (3, "shape-3.png")):
        expected = naive_average_precision(row, query, searched, False)
        assert by_item[name].average_precision == pytest.approx(expected, abs=1e-6)
        assert all(hit.image.startswith("gallery-") for hit in by_item[name].neighbors)
    assert len(by_item["shape-0.png"].neighbors) == 5


def test_embeddings_may_be_of_some_images_in_any_order(feed: ShapeFeed, tmp_path: Path) -> None:
    model = ColorModel()
    chosen = [20, 3, 7, 0, 22, 11, 4]
    shown = collect(model, feed, embedded(model, feed, chosen), tmp_path / "x")
    for query in (*shown.worst, *shown.sample):
        assert index_of(query) in chosen
        assert query.class_name == list(COLORS)[LABELS[index_of(query)]]


def test_what_is_looked_at_is_bounded(
    feed: ShapeFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 10)
    monkeypatch.setattr(module, "MOST_IMAGES", 4)
    shown = collect(ColorModel(), feed, random_embeddings(LABELS), tmp_path / "x", images=2)
    assert shown.embedding_map is not None
    assert len(shown.embedding_map.points) == 10
    assert feed.seen <= 4 + 4


def test_the_model_is_left_as_it_was(feed: ShapeFeed, tmp_path: Path) -> None:
    model = ColorModel()
    for training in (True, False):
        model.train(training)
        collect(model, feed, random_embeddings(LABELS), tmp_path / "x")
        assert model.training == training


@pytest.mark.parametrize("count", [12, 60])
def test_a_map_is_the_same_when_made_again(count: int) -> None:
    vectors = random_embeddings([0] * count).vectors.numpy()
    one, method = flatten_to_plane(vectors)
    two, _ = flatten_to_plane(vectors)
    assert method == ("PCA" if count < 30 else "t-SNE")
    assert one.shape == (count, 2)
    assert np.isfinite(one).all()
    np.testing.assert_array_equal(one, two)


def test_a_map_keeps_clusters_apart() -> None:
    centers = np.eye(3, dtype=np.float32).repeat(20, axis=0)
    noise = np.random.default_rng(0).normal(0, 0.02, centers.shape).astype(np.float32)
    points, _ = flatten_to_plane(centers + noise)
    labels = np.arange(60) // 20
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (labels[distances.argmin(1)] == labels).all()


@pytest.mark.parametrize("count", [3, 40])
def test_equal_embeddings_have_a_map(count: int) -> None:
    points, _ = flatten_to_plane(np.ones((count, 4), np.float32))
    assert np.isfinite(points).all()


def test_the_classes_in_color_are_retrieved_worst(
    feed: ShapeFeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COLORED", 2)
    found = random_embeddings(LABELS)
    chart = collect(ColorModel(), feed, found, tmp_path / "x").embedding_map
    assert chart is not None
    scores = [naive_average_precision(row, found, found, True) for row in range(len(LABELS))]
    means = [
        np.mean([s for s, own in zip(scores, LABELS, strict=True) if own == c]) for c in range(4)
    ]
    assert list(chart.colored) == list(np.argsort(means)[:2])
    assert chart.class_names == tuple(COLORS)


def test_two_images_are_enough(tmp_path: Path) -> None:
    feed = ShapeFeed(Shapes([0, 0]))
    shown = collect(ColorModel(), feed, random_embeddings([0, 0]), tmp_path / "x")
    assert len(shown.worst) == 2
    assert shown.embedding_map is None
    assert shown.notes == ("There is no map of 2 points.",)


@pytest.mark.parametrize("name", ["images", "neighbors", "prototypes"])
def test_counts_below_one_are_refused(name: str, feed: ShapeFeed, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        collect(ColorModel(), feed, random_embeddings(LABELS), tmp_path / "x", **{name: 0})
    assert not (tmp_path / "x").exists()


def test_other_bad_arguments_are_refused(feed: ShapeFeed, tmp_path: Path) -> None:
    found = random_embeddings(LABELS)
    with pytest.raises(ValueError, match="gallery_feed is of no use without gallery_embeddings"):
        collect(ColorModel(), feed, found, tmp_path / "x", gallery_feed=feed)
    with pytest.raises(ValueError, match="at least 2 images, got 1"):
        collect(ColorModel(), feed, random_embeddings([0]), tmp_path / "x")


def test_page_shows_what_was_collected(shown: Gallery, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "config.yaml").write_text("pool: gsp\n")
    page = write_run_page(tmp_path).read_text()
    for query in shown.worst:
        assert query.item in page
