"""The page of a run: everything on it, nothing outside of it, and words for what is missing."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from report.fake_runs import PageReader, make_gallery, make_run
from sumpool.report.overlays import overlay, scale_top
from sumpool.report.run.gallery_files import write_gallery
from sumpool.report.run.page import write_run_page
from sumpool.system.files import StoreError


@pytest.fixture(scope="module")
def birds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has everything, and its page."""
    folder = make_run(tmp_path_factory.mktemp("runs") / "birds")
    assert write_run_page(folder) == folder / "report.html"
    return folder


@pytest.fixture(scope="module")
def whole(birds: Path) -> str:
    """The page of a run that has everything."""
    return (birds / "report.html").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def words(folder: Path) -> str:
    """The text of the page of a run."""
    return PageReader(write_run_page(folder).read_text()).text


def test_page_is_self_contained(whole: str) -> None:
    for outside in ("http:", "https:", "url(", "@import", "<script"):
        assert outside not in whole
    page = PageReader(whole)
    assert len(page.links) > 40
    for link in page.links:
        head, data = link.split(",", 1)
        assert head in ("data:image/png;base64", "data:image/jpeg;base64")
        assert base64.b64decode(data, validate=True)
    assert page.anchors
    assert {anchor.removeprefix("#") for anchor in page.anchors} == set(page.ids)
    assert all(alt for alt in page.alts)


def test_page_fits_a_phone_and_the_dark(whole: str) -> None:
    assert 'content="width=device-width, initial-scale=1"' in whole
    assert whole.count("prefers-color-scheme: dark") >= 2
    assert "@media (max-width" in whole


def test_head_says_how_good_what_and_why_it_stopped(whole: str) -> None:
    text = PageReader(whole).text
    assert "MAP@R 25.0 % and P@1 55.0 % over 120 test queries; 2 more had no match" in text
    assert "small_cnn, GSP pooling (m = 8, μ = 0.3, ε = 5), loss C2 + 0.1 × zero-shot loss" in text
    assert "trained on birds & more (1,200 images of 6 classes)" in text
    assert "40 steps, best at 20, seed 0, device cpu, 40.0 s" in text
    assert "stopped because validation got no better" in text


def test_table_has_a_row_for_each_evaluation(whole: str) -> None:
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', whole)
    cells = {name: re.findall("<td>(.*?)</td>", row) for name, row in rows}
    assert cells["validation"] == ["30.0", "60.0", "60.0", "60.0", "60.0", "40.0", "120", "0"]
    assert cells["test"] == ["25.0", "55.0", "55.0", "55.0", "55.0", "35.0", "120", "2"]


def test_names_are_escaped(whole: str) -> None:
    assert "<wren>" not in whole
    assert "&lt;wren&gt;" in whole
    assert "bird <0>" not in whole


def test_right_and_wrong_are_told_by_more_than_color(whole: str) -> None:
    # Three neighbors for each of 8 worst and 2 random queries, of which the second is wrong.
    assert whole.count("<b>✓</b>") == 20
    assert whole.count("<b>✗</b>") == 10
    assert whole.count('class="tile wrong"') == 10
    assert "border-style: dashed" in whole


def test_worst_queries_come_first_with_their_precision(whole: str) -> None:
    text = PageReader(whole).text
    found = [text.index(f"R = 2: {score}.0%") for score in (0, 10, 20, 30, 40, 50, 60, 70, 75)]
    assert found == sorted(found)
    assert "no other image of its class is searched" in text
    assert "Worst of 1,300 queries" in text
    assert "2 more queries" in text  # only the first are open


def test_weights_prototypes_and_map_are_explained(whole: str) -> None:
    text = PageReader(whole).text
    assert "each of the n positions (3×4) relative to an equal one" in text
    assert "The 2 most used of 8 prototypes (an equal share would be 12.5%" in text
    assert "Prototype 7 receives 50.0% of what is pooled" in text
    assert "left: 25.0%; top: 50.0%; width: 25.0%; height: 50.0%" in whole
    assert "the 2 classes that are retrieved worst in color, 1 gray" in text
    assert "PCA in two dimensions" in text


def test_configuration_and_provenance_are_there(whole: str) -> None:
    text = PageReader(whole).text
    assert "sumpool train --data '/photos/birds & more'" in text
    assert "torch 2.15.0" in text
    assert "monitor: mean_average_precision_at_r" in text
    assert "cores 2, gpus none" in text


@pytest.mark.usefixtures("undrawn")
def test_an_equal_weight_is_said_not_drawn(tmp_path: Path) -> None:
    text = words(make_run(tmp_path / "gap", "gap"))
    assert "Every position of an image has the same weight" in text
    assert "The pooling has no prototypes." in text
    assert "GAP pooling, loss C2, trained on" in text


@pytest.mark.usefixtures("undrawn")
def test_a_run_that_has_just_begun_has_a_page(folder: Path) -> None:
    for name in ("evaluation", "exhibits"):
        shutil.rmtree(folder / name)
    for name in ("log.csv", "validation.csv"):
        (folder / name).unlink()
    (folder / "run.json").write_text("{}")
    text = words(folder)
    for said in (
        "Not evaluated yet.",
        "It has not finished",
        "Neither validation nor test has been made yet.",
        "Nothing has been logged yet.",
        "No pictures were collected",
        "not finished",
    ):
        assert said in text


@pytest.mark.usefixtures("undrawn")
def test_an_interrupted_run_shows_its_best_validation(folder: Path) -> None:
    for name in ("evaluation", "exhibits"):
        shutil.rmtree(folder / name)
    facts = json.loads((folder / "run.json").read_text())
    facts.update(stopped="interrupted", finished=None)
    (folder / "run.json").write_text(json.dumps(facts))
    text = words(folder)
    assert "MAP@R 30.0 % and P@1 60.0 % over 120 validation queries; none was left out." in text
    assert "validation (step 20)" in text
    assert "There is no evaluation on a test set." in text
    assert "It was interrupted and can be resumed." in text


def test_one_line_of_each_log_is_enough(folder: Path) -> None:
    for name in ("log.csv", "validation.csv"):
        lines = (folder / name).read_bytes().splitlines(keepends=True)
        (folder / name).write_bytes(b"".join(lines[:2]))
    assert PageReader(write_run_page(folder).read_text()).text


@pytest.mark.usefixtures("undrawn")
def test_a_loss_that_is_not_finite_is_said(folder: Path) -> None:
    (folder / "log.csv").write_text("step,loss\n10,1\n20,nan\n30,inf\n")
    assert "not a finite number at step 20" in words(folder)


@pytest.mark.usefixtures("undrawn")
def test_a_torn_log_is_said(folder: Path) -> None:
    path = folder / "validation.csv"
    path.write_bytes(path.read_bytes()[:-9])
    assert "validation.csv: the last line is torn and left out." in words(folder)


@pytest.mark.usefixtures("undrawn")
def test_few_pictures_are_enough(folder: Path) -> None:
    write_gallery(make_gallery(count=0), folder / "exhibits")
    assert "None." in words(folder)


@pytest.mark.drawn
def test_page_goes_where_it_is_asked_for_and_is_the_same_again(birds: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "a.html"
    assert write_run_page(birds, out) == out
    assert out.read_bytes() == write_run_page(birds).read_bytes()
    assert list(out.parent.iterdir()) == [out]


def test_what_is_no_run_gets_no_page(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"holds no run: run\.json"):
        write_run_page(tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_page_is_written_without_torch(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from sumpool.report.run.page import write_run_page\n"
        "write_run_page(Path(sys.argv[1]))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)


def test_heat_is_where_the_weight_is() -> None:
    import io

    import numpy as np
    from PIL import Image

    exhibits = make_gallery()
    jpeg = exhibits.images["image-0000000.jpg"]
    weights = np.zeros((2, 2), np.float32)
    weights[0, 1] = 4
    drawn = np.asarray(Image.open(io.BytesIO(overlay(jpeg, weights, 4.0)))).astype(float)
    assert drawn.shape == (24, 24, 3)
    corners = [drawn[y : y + 6, x : x + 6].mean() for y in (0, 18) for x in (0, 18)]
    assert int(np.argmax(corners)) == 1
    assert scale_top([weights]) == 4
    assert scale_top([np.ones((2, 2), np.float32)]) == 2
