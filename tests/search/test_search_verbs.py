"""The verbs index, search and duplicates: what they print, write and refuse."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from search.small_index import small_model, write_pictures
from sumpool.cli import main
from sumpool.models import save_embedder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    write_pictures(folder / "photos" / "bird", 4)
    write_pictures(folder / "photos" / "<b>fish</b>", 4, 4)
    shutil.copy(folder / "photos/bird/001.png", folder / "photos/bird/copy.png")
    save_embedder(small_model(), folder / "model")
    data = ["--data", str(folder / "photos"), "--model", str(folder / "model")]
    assert main(["index", *data, "--out", str(folder / "index"), "--device", "cpu"]) == 0
    return folder


def run(*words: str | Path, status: int = 0) -> None:
    assert main([str(word) for word in words]) == status


def test_an_update_says_what_it_did(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("index", home / "index", "--update")
    assert f"9 images (nothing changed): {home / 'index'}" in capsys.readouterr().out


def test_text_has_a_line_per_image_and_a_verdict(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("search", home / "index", home / "photos/bird/002.png", "1", "-k", "3")
    first, second = capsys.readouterr().out.split("\n\n")
    assert first.splitlines()[1].split() == ["similarity", "id", "label", "path"]
    assert first.splitlines()[2].startswith("1.000")
    assert len(second.strip().splitlines()) == 1 + 1 + 3 + 1
    assert "at or above the threshold" in first or "Nothing is similar enough" in first


def test_names_with_line_breaks_stay_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = write_pictures(tmp_path / "photos", 2)
    broken = shutil.copyfile(paths[0], paths[0].with_name("a\n  9  b\x1b[2J.png"))
    save_embedder(small_model(), tmp_path / "model")
    index = tmp_path / "index"
    run("index", "--data", tmp_path / "photos", "--model", tmp_path / "model", "--out", index)
    capsys.readouterr()
    run("search", index, broken, "-k", "3")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 1 + 3 + 1
    assert sum(r"a\n  9  b\x1b[2J.png" in line for line in lines) == 2  # query and result
    run("duplicates", index)
    assert r"a\n  9  b\x1b[2J.png" in capsys.readouterr().out
    no_text = shutil.copyfile(paths[0], tmp_path / os.fsdecode(b"\xff.png"))
    run("search", index, no_text, "-k", "1")
    assert capsys.readouterr().out.splitlines()[0].endswith(r"\udcff.png")


def test_json_and_csv_agree(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("search", home / "index", "bird/001.png", "--where", "label=bird", "-k", "2")
    run(*words, "--json")
    (answer,) = json.loads(capsys.readouterr().out)
    run(*words, "--csv")
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [it["path"] for it in answer["matches"]] == [row["path"] for row in rows]
    assert {row["label"] for row in rows} == {"bird"}
    assert answer["matches"][0]["path"] == "bird/copy.png"
    assert answer["threshold"]["meaning"]


def test_an_indexed_image_is_searched_by_without_its_file_or_the_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos, index = tmp_path / "photos", tmp_path / "index"
    paths = write_pictures(photos, 3)
    save_embedder(small_model(), tmp_path / "model")
    run("index", "--data", photos, "--model", tmp_path / "model", "--out", index)
    paths[1].unlink()
    shutil.rmtree(index / "model")
    capsys.readouterr()
    for query in ("1", "001.png"):
        run("search", index, query, "--json")
        (answer,) = json.loads(capsys.readouterr().out)
        assert {it["path"] for it in answer["matches"]} == {"000.png", "002.png"}


def test_prototypes_answer_too(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("search", home / "index", "--prototype", "2", "-k", "3")
    out = capsys.readouterr().out
    assert out.startswith("prototype 2\nshare")


def test_what_is_below_the_threshold_is_left_out(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("search", home / "index", "3", "--threshold", "0.99999")
    assert "Nothing is at least 0.99999 similar." in capsys.readouterr().out


def test_the_page_escapes_labels_and_holds_all_images(home: Path, tmp_path: Path) -> None:
    page = tmp_path / "answer.html"
    run("search", home / "index", "5", "-k", "4", "--box", "5,5,45,45", "--html", page)
    text = page.read_text(encoding="utf-8")
    assert "&lt;b&gt;fish&lt;/b&gt;" in text
    assert "<b>" not in text
    assert text.count("data:image/jpeg;base64,") == 1 + 4 * 3  # query; image and two maps each
    assert "http" not in text


def test_pages_show_what_is_left_of_images_that_are_gone(home: Path, tmp_path: Path) -> None:
    photos, copy = tmp_path / "photos", tmp_path / "index"
    shutil.copytree(home / "photos", photos)
    run("index", "--data", photos, "--out", copy, "--model", home / "model", "--device", "cpu")
    gone = sorted(photos.rglob("copy.png"))
    gone[0].unlink()
    page = tmp_path / "page.html"
    for command in (("search", copy, "5", "-k", "99"), ("duplicates", copy)):
        run(*command, "--html", page, "--overwrite")
        assert page.read_text(encoding="utf-8").count("can no longer be read") == 1


def test_duplicates_are_listed(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("duplicates", home / "index", "--threshold", "1")
    out = capsys.readouterr().out
    assert re.search(r"same content\n  \d  bird/001\.png\n  \d  bird/copy\.png\n", out)
    assert "1 group with the same content" in out
    run("duplicates", home / "index", "--json")
    assert json.loads(capsys.readouterr().out)[0]["exact"]
    page = tmp_path / "duplicates.html"
    run("duplicates", home / "index", "--html", page)
    assert "same content" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["index"], "a new index needs --data and --out"),
        (["index", "x"], "to update x, add --update"),
        (["index", "--update"], "--update needs the index"),
        (["index", "x", "--update", "--batch-size", "3"], "--batch-size is for a new index"),
        (["index", "--data", "nowhere", "--out", "x"], "data folder nowhere does not exist"),
        (["index", "--data", ".", "--out", "x", "--gpus", "1"], "--gpus needs --ray"),
        (["index", "x", "--update"], "x is not an index"),
        (["search", "x"], "QUERY is missing: give an image file, an id or a path, or"),
        (["search", "INDEX", "nothing.jpg"], "QUERY must be an image file, or the id or path"),
        (["search", "INDEX", "1", "2", "--box", "1,2,3,4"], "--box needs a single QUERY, got 2"),
        (["search", "INDEX", "1", "--box", "1,2"], "--box must be x0,y0,x1,y1 in pixels"),
        (["search", "INDEX", "1", "--where", "bird"], "--where must be label=NAME, got 'bird'"),
        (["search", "INDEX", "1", "--json", "--csv"], "--json and --csv are mutually exclusive"),
        (["search", "INDEX", "1", "--prototype", "2"], "--prototype and a QUERY are mutually"),
        (["duplicates", "INDEX", "--threshold", "2"], "--threshold must be above 0 and at most 1"),
        (["index", "--data", "PHOTOS", "--out", "x", "--store", "best"], "store must be auto,"),
    ],
)
def test_errors_are_one_line(
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"INDEX": home / "index", "PHOTOS": home / "photos"}
    run(*(places.get(word, word) for word in words), status=1)
    error = capsys.readouterr().err.strip().splitlines()
    assert says in error[-1]
    assert list(tmp_path.iterdir()) == []
