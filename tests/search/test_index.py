"""The index: what it finds, how it follows its images, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from data.miniatures import parquet
from search.small_index import clusters, picture, small_model, write_pictures
from sumpool.models import load_embedder, save_embedder
from sumpool.search import Index, folder
from sumpool.search.folder import DIGEST, HEADER, LOCK, read_header, write_header
from sumpool.search.parts import embed_parts
from sumpool.search.queries import QueryError
from sumpool.search.source import Source
from sumpool.search.threshold import calibrate
from sumpool.search.update import begin, update
from sumpool.system.digests import write_digests
from sumpool.system.errors import UserError
from sumpool.system.files import StoreError
from sumpool.system.locks import claim

SPLITTING = {"batch_size": 4, "progress": False, "workers": 2}


def build(data: Path, out: Path, pooling: str = "gsp", **options: object) -> Index:
    return Index.build(data, out, small_model(pooling), **{**SPLITTING, **options})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    write_pictures(folder / "bird", 5)
    write_pictures(folder / "fish", 5, 5)
    return folder


@pytest.fixture(scope="module")
def index(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(photos, tmp_path_factory.mktemp("index") / "labeled")


def listing(folder: Path) -> dict[str, bytes]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_vectors_are_those_of_the_model(index: Index, photos: Path) -> None:
    paths = [photos / name for name in index.images["path"].to_pylist()]
    expected = small_model().embed(paths, batch_size=4).numpy()
    assert index.vectors.shape == (10, 16)
    np.testing.assert_allclose(index.vectors, expected, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(index.vectors, axis=1), 1, atol=1e-6)


def test_nearest_images_are_those_of_all_products(index: Index, photos: Path) -> None:
    query = small_model().embed(photos / "fish" / "007.png").numpy()[0]
    order = np.argsort(-(index.vectors @ query), kind="stable")
    found = index.search(photos / "fish" / "007.png", 4)
    assert [it.id for it in found] == order[:4].tolist()
    assert found[0].path == "fish/007.png"
    assert found[0].similarity == pytest.approx(1, abs=1e-5)


def test_an_indexed_image_does_not_find_itself(index: Index) -> None:
    found = index.search(3, 9)
    assert 3 not in [it.id for it in found]
    assert len(found) == 9


def test_where_finds_that_label_alone(index: Index) -> None:
    found = index.search(0, 10, where={"label": "fish"})
    assert [it.label for it in found] == ["fish"] * 5


def test_the_whole_image_as_a_box_is_the_image(index: Index, photos: Path) -> None:
    path = photos / "bird" / "001.png"
    view = index.embed(path).view.window
    whole = index.search((path, view), 3)
    assert [it.id for it in whole] == [it.id for it in index.search(path, 3)]


def test_a_box_is_a_mask_of_the_pooling(index: Index) -> None:
    part = index.embed(3, (0, 0, 25, 25))
    assert part.mask is not None
    pooled = index.model.pooling.pool(part.features, part.mask)
    assert pooled.weights is not None
    assert float(pooled.weights.detach()[~part.mask].sum()) == 0
    expected = index.model.embedding(pooled.embedding)[0].detach()
    np.testing.assert_allclose(part.vector, expected / expected.norm(), atol=1e-6)


def test_prototypes_find_the_largest_attribute(index: Index) -> None:
    z = np.array(index.images["z"].to_pylist())
    assert index.prototypes == 4
    found = index.search_prototype(2, 3)
    assert [it.id for it in found] == np.argsort(-z[:, 2], kind="stable")[:3].tolist()
    np.testing.assert_allclose([it.similarity for it in found], np.sort(z[:, 2])[::-1][:3])


def test_a_single_prototype_is_nothing_to_search_by(photos: Path, tmp_path: Path) -> None:
    found = build(photos, tmp_path / "index", "gsp-keys")
    assert found.prototypes == 0
    with pytest.raises(QueryError, match="the pooling gsp-keys has no prototypes to search by"):
        found.search_prototype(0)


def test_a_part_is_explained_to_the_similarity(index: Index) -> None:
    why = index.explain((2, (5, 5, 40, 40)), 7)
    assert why.result_map.sum() == pytest.approx(why.similarity, abs=1e-5)
    assert index.search(index.embed(2, (5, 5, 40, 40)), 10)[0].similarity >= why.similarity - 1e-5


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda it: it.search(99), "id must be that of an indexed image, between 0 and 9, got 99"),
        (lambda it: it.search(0, 2.5), "k must be a whole number of at least 1, got 2.5"),
        (lambda it: it.search_prototype(0, -1), "k must be a whole number of at least 1, got -1"),
        (lambda it: it.search_prototype(1.5), "prototype must lie between 0 and 3, got 1.5"),
        (lambda it: it.search(True), "query must be an image file, .* got bool"),
        (lambda it: it.search((0, (0, 0, 9, 9), 1)), "query must be .* or a pair .* got tuple"),
        (lambda it: it.search(-1), "id must be that of an indexed image, .* got -1"),
        (lambda it: it.search(0, threshold=float("nan")), "threshold must be a number, got nan"),
        (lambda it: it.search(0, where={"label": None}), "where must name labels, .* got None"),
        (lambda it: it.search(it.embed(0), box=(0, 0, 9, 9)), "box must be left out with an emb"),
        (lambda it: it.explain(it.embed(0), 1, box=(0, 0, 9, 9)), "box must be left out with an"),
        (lambda it: it.search(0, 0), "k must be a whole number of at least 1, got 0"),
        (lambda it: it.search(0, where={"color": "red"}), "where must be label=NAME, got 'color'"),
        (lambda it: it.search(0, where={"label": "brid"}), "no image has the label 'brid'; .*bird"),
        (lambda it: it.search(0, box=(1, 2, 3)), "box must be x0,y0,x1,y1 in pixels of the image"),
        (lambda it: it.search(0, box=(9, 9, 1, 20)), "with x0 < x1 and y0 < y1"),
        (lambda it: it.search(0, box=(900, 9, 910, 20)), "which lies outside"),
        (lambda it: it.search_prototype(4), "prototype must lie between 0 and 3, got 4"),
    ],
)
def test_errors_name_the_argument(index: Index, ask: object, says: str) -> None:
    with pytest.raises(QueryError, match=says):
        ask(index)  # type: ignore[operator]


def test_broken_images_are_skipped_and_listed(tmp_path: Path) -> None:
    write_pictures(tmp_path / "photos", 5)
    (tmp_path / "photos" / "002.png").write_bytes(b"not an image")
    found = build(tmp_path / "photos", tmp_path / "index")
    assert len(found) == 4
    ((name, reason),) = found.header.skipped
    assert name == "002.png"
    assert "none of the formats" in reason
    assert found.labels == ()
    with pytest.raises(QueryError, match="where needs labels"):
        found.search(0, where={"label": "x"})


def test_a_folder_of_broken_images_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.png").write_bytes(b"x")
    with pytest.raises(
        UserError, match=r"no image is left in .*photos: cannot read the image a\.png"
    ):
        build(tmp_path / "photos", tmp_path / "index")


def test_images_beside_folders_are_all_taken_without_labels(tmp_path: Path) -> None:
    write_pictures(tmp_path / "photos", 2)
    write_pictures(tmp_path / "photos" / "album", 2, 2)
    found = build(tmp_path / "photos", tmp_path / "index")
    assert sorted(found.images["path"].to_pylist()) == ["000.png", "001.png", "album/002.png",
                                                        "album/003.png"]  # fmt: skip
    assert found.labels == ()


def test_an_update_touches_what_changed_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = write_pictures(tmp_path / "photos", 8)
    index = build(tmp_path / "photos", tmp_path / "index")
    before = {it: index.vectors[it].copy() for it in range(8)}
    paths[1].unlink()
    picture(77).save(paths[3])
    paths[4].touch()  # another time, the same content
    write_pictures(tmp_path / "photos", 1, 50)
    embedded: list[str] = []

    def spy(model: object, source: object, parts: object, *rest: object, **more: object) -> None:
        embedded.extend(name for part in parts for name in part.names)  # type: ignore[attr-defined]
        embed_parts(model, source, parts, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("sumpool.search.update.embed_parts", spy)
    changes = index.update(progress=False)
    assert (changes.added, changes.changed, changes.removed, changes.kept) == (1, 1, 1, 6)
    assert sorted(embedded) == ["003.png", "050.png"]
    assert index.images["id"].to_pylist() == [0, 2, 3, 4, 5, 6, 7, 8]
    for row, id in enumerate(index.images["id"].to_pylist()):
        same = id in before and np.array_equal(index.vectors[row], before[id])
        assert same == (id not in (3, 8))
    again = listing(tmp_path / "index")
    assert index.update(progress=False).kept == 8
    assert listing(tmp_path / "index") == again


def test_a_store_that_cannot_be_built_leaves_the_index_as_it_is(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build(photos, tmp_path / "index")
    before = listing(tmp_path / "index")

    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr("sumpool.search.update.open_vector_index", full)
    with pytest.raises(StoreError, match="the disk is full"):
        index.update(progress=False, store="hnsw")
    assert listing(tmp_path / "index") == before


def test_an_interrupted_build_continues_to_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sumpool.search.parts.SIZE", 3)
    write_pictures(tmp_path / "photos", 8)
    build(tmp_path / "photos", tmp_path / "whole", thumbnails=True)
    parts: list[object] = []

    def interrupted(path: Path, table: object) -> None:
        if len(parts) == 2:
            raise KeyboardInterrupt
        parts.append(path)
        write(path, table)

    from sumpool.search.parts import write_images as write

    monkeypatch.setattr("sumpool.search.parts.write_images", interrupted)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path / "photos", tmp_path / "torn", thumbnails=True)
    with pytest.raises(StoreError, match="is not finished: resume with sumpool index"):
        Index.open(tmp_path / "torn")
    monkeypatch.setattr("sumpool.search.parts.write_images", write)
    build(tmp_path / "photos", tmp_path / "torn", thumbnails=True)
    assert listing(tmp_path / "torn") == listing(tmp_path / "whole")


def test_thumbnails_are_those_of_the_images(tmp_path: Path) -> None:
    paths = write_pictures(tmp_path / "photos", 2)
    index = build(tmp_path / "photos", tmp_path / "index", thumbnails=True)
    assert len(list((tmp_path / "index" / "thumbnails").rglob("*.jpg"))) == 2
    assert index.thumbnail(0)[:2] == b"\xff\xd8"
    paths[0].unlink()
    index.update(progress=False)
    assert len(list((tmp_path / "index" / "thumbnails").rglob("*.jpg"))) == 1


@pytest.mark.process  # seconds to draw
def test_drawn_images_need_no_files(tmp_path: Path) -> None:
    source = Source(tmp_path, "glyphs", "validation", labels=True)
    assert not source.files
    assert source.content_hash(0) == source.content_hash(0) != source.content_hash(1)
    assert source.label(0) is not None


def test_a_finished_index_is_not_built_again(index: Index, photos: Path) -> None:
    with pytest.raises(StoreError, match="is an index already: update it with"):
        build(photos, index.folder)


def test_a_refused_build_leaves_the_unfinished_one_as_it_is(tmp_path: Path) -> None:
    write_pictures(tmp_path / "photos", 3)
    options = {"format": "auto", "split": "all", "labels": True, "allow_outside": False}
    options |= {"thumbnails": False, "store": "auto", "batch_size": 4}
    begin(tmp_path / "photos", tmp_path / "index", small_model(), **options)
    before = listing(tmp_path / "index")
    with pytest.raises(StoreError, match=r"unfinished index with other options \(model_digest\)"):
        begin(tmp_path / "photos", tmp_path / "index", small_model("gap"), **options)
    assert listing(tmp_path / "index") == before
    assert update(tmp_path / "index", progress=False).added == 3


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    write_pictures(tmp_path, 1)
    with pytest.raises(StoreError, match=r"holds other files, such as 000\.png"):
        build(tmp_path, tmp_path)


def test_a_locked_index_names_who_writes_it(index: Index) -> None:
    with claim(index.folder / LOCK), pytest.raises(StoreError, match="is being written by process"):
        index.update(progress=False)


def test_no_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=f"is not an index, {HEADER} is missing"):
        Index.open(tmp_path)


@pytest.mark.parametrize("name", ["vectors", "images"])
def test_damage_is_noticed(index: Index, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(index.folder, tmp_path / "copy"))
    (path,) = copy.glob(f"{name}-*")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(StoreError, match=f"{name}-.* (cannot be read|is damaged)"):
        Index.open(copy)


def test_another_model_is_noticed(index: Index, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(index.folder, tmp_path / "copy"))
    save_embedder(small_model("gap"), copy / "model")
    with pytest.raises(StoreError, match="is not that of the index"):
        Index.open(copy).update(progress=False)
    assert load_embedder(copy / "model").config.pooling == "gap"


def test_a_newer_version_is_refused(index: Index, tmp_path: Path) -> None:
    write_header(tmp_path, read_header(index.folder))
    text = (tmp_path / HEADER).read_text(encoding="utf-8")
    (tmp_path / HEADER).write_text(text.replace('"version": 1', '"version": 2'), encoding="utf-8")
    with pytest.raises(StoreError, match="is of version 2, this sumpool reads up to 1"):
        Index.open(tmp_path)


def test_a_pil_image_and_its_file_are_the_same_query(index: Index, photos: Path) -> None:
    path = photos / "fish" / "006.png"
    with Image.open(path) as image:
        assert index.search(image, 3) == index.search(path, 3)


def test_a_changed_parquet_file_is_noticed_row_by_row(tmp_path: Path) -> None:
    data = parquet(tmp_path / "data", labels=None, size=(60, 50))
    index = build(data, tmp_path / "index")
    before = np.array(index.vectors)
    assert index.update(progress=False).kept == 4
    table = pq.read_table(data / "0.parquet")
    buffer = io.BytesIO()
    picture(3).save(buffer, "PNG")
    rows = [table["image"][0].as_py(), buffer.getvalue()]
    pq.write_table(pa.table({"image": rows}), data / "0.parquet", row_group_size=1)
    os.utime(data / "1.parquet")  # touched, with the same images in it
    changes = index.update(progress=False)
    assert (changes.changed, changes.kept, changes.added, changes.removed) == (1, 3, 0, 0)
    assert (index.vectors[[0, 2, 3]] == before[[0, 2, 3]]).all()
    expected = small_model().embed(picture(3)).numpy()
    np.testing.assert_allclose(index.vectors[1:2], expected, atol=1e-6)
    assert index.load(1).getpixel((3, 3)) == picture(3).getpixel((3, 3))


def write_run(folder: Path) -> Path:
    """What a finished run leaves: its model, and embeddings of validation images, not of norm 1."""
    save_embedder(small_model(), folder / "model")
    (folder / "run.json").write_text("{}")
    part = folder / "evaluation" / "validation"
    part.mkdir(parents=True)
    vectors, labels = clusters(0.55)
    np.save(part / "embeddings.npy", 3 * vectors)
    np.save(part / "labels.npy", np.unique(labels, return_inverse=True)[1])
    write_digests(folder, "SHA256SUMS")
    return folder


def test_the_threshold_is_that_of_the_validation_images_of_the_run(
    photos: Path, tmp_path: Path
) -> None:
    run, data = write_run(tmp_path / "my-run"), tmp_path / "photos"
    shutil.copytree(photos, data)
    index = Index.build(data, tmp_path / "index", run, **SPLITTING)  # type: ignore[arg-type]
    expected = calibrate(*clusters(0.55))
    assert index.threshold.value == pytest.approx(expected.value, abs=1e-4)
    assert "measured on 120 validation images of the run my-run, 90%" in index.threshold.meaning
    stated = index.threshold
    shutil.rmtree(run)  # it is kept in the index
    write_pictures(data / "bird", 2, 20)
    index.update(progress=False)
    assert len(index) == 12
    assert index.threshold == stated
    own = build(photos, tmp_path / "own")
    assert "indexed images" in own.threshold.meaning


def test_damaged_validation_images_calibrate_nothing(photos: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    labels = run / "evaluation" / "validation" / "labels.npy"
    labels.write_bytes(labels.read_bytes()[:-1] + b"\1")
    with pytest.raises(StoreError, match=f"{labels} is damaged"):
        Index.build(photos, tmp_path / "index", run, **SPLITTING)  # type: ignore[arg-type]
    assert not (tmp_path / "index" / HEADER).exists()


def test_a_header_that_does_not_say_where_it_was_calibrated_is_read(
    index: Index, tmp_path: Path
) -> None:
    values = json.loads((index.folder / HEADER).read_text())
    del values["calibrated_on"], values[DIGEST]
    values[DIGEST] = folder._digest(values)
    (tmp_path / HEADER).write_text(json.dumps(values))
    assert read_header(tmp_path) == index.header


def test_ids_and_numbers_may_be_those_of_numpy(index: Index) -> None:
    id = index.images["id"].to_numpy()[2]
    assert index.search(id, np.int64(3)) == index.search(int(id), 3)
    assert index.search_prototype(np.int64(1), np.int64(2)) == index.search_prototype(1, 2)
    assert index.explain(id, np.int64(1)).similarity == index.explain(int(id), 1).similarity


def test_a_batch_has_images(photos: Path, tmp_path: Path) -> None:
    built = build(photos, tmp_path / "numpy", batch_size=np.int64(4))
    assert built.header == build(photos, tmp_path / "plain", batch_size=4).header
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        build(photos, tmp_path / "index", batch_size=0)
    assert not (tmp_path / "index").exists()
