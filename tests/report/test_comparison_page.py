"""The page that compares runs: groups, means, the same images under each."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from report.fake_runs import PageReader, make_run
from sumpool.report.run.comparability import check_comparable, difference_table
from sumpool.report.run.comparison import comparison_table, write_comparison_page
from sumpool.report.run.files import read_run
from sumpool.report.run.groups import group_runs
from sumpool.report.run.page import write_run_page
from sumpool.system.files import StoreError

Groups = dict[str, list[Path]]


@pytest.fixture
def groups(tmp_path: Path) -> Groups:
    scores = {"gap": (0.20, 0.22, 0.24), "gsp": (0.30, 0.32, 0.34)}
    return {
        pool.upper(): [
            make_run(tmp_path / "runs" / f"{pool} {seed}", pool, seed, score)
            for seed, score in enumerate(own)
        ]
        for pool, own in scores.items()
    }


@pytest.mark.drawn
def test_groups_are_averaged_and_compared(groups: Groups, tmp_path: Path) -> None:
    table = comparison_table(groups)
    assert [row[:4] for row in table.rows] == [
        ["GAP", "3", "22.0 ± 2.0", "52.0 ± 2.0"],
        ["GSP", "3", "32.0 ± 2.0", "62.0 ± 2.0"],
    ]
    assert "test set" in table.caption
    notes = ["Two poolings, <three> seeds."]
    page = PageReader(
        write_comparison_page(groups, tmp_path / "c.html", "A & B", notes).read_text()
    )
    assert "GSP − GAP in MAP@R: +10.0 points; their standard deviations add up to 4.0." in page.text
    assert "Two poolings, <three> seeds." in page.text
    assert "GAP: every position has the same weight" in page.text
    assert "GAP seed 0, GSP seed 0" in page.text
    for link in page.links:
        assert base64.b64decode(link.partition("base64,")[2], validate=True)
    # An image and a map for each group, for both images of the sample; five charts.
    assert len(page.links) == 5 + 2 * 3


@pytest.mark.usefixtures("undrawn")
def test_the_page_says_in_which_settings_and_data_groups_differ(tmp_path: Path) -> None:
    one = make_run(tmp_path / "a", "gap", data_set="cub")
    two = make_run(tmp_path / "b", "gsp", data_set="cars", seed=1)
    groups = {"GAP": [one], "GSP": [two]}
    table = difference_table(
        {name: [read_run(run) for run in runs] for name, runs in groups.items()}
    )
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["data_set"] == ["cub", "cars"]
    assert rows["zero_shot.weight"] == ["0.0", "0.1"]
    assert rows["seed"] == ["0", "1"]
    assert "loss" not in rows
    page = write_comparison_page(groups, tmp_path / "c.html", "A").read_text()
    assert "Settings and data in which the groups differ" in page
    same = difference_table({"A": [read_run(one)], "B": [read_run(one)]})
    assert (same.rows, "do not differ" in same.caption) == ([], True)


def list_images(run: Path, source: str, names: list[str]) -> None:
    folder = run / "evaluation" / source
    (folder / "items.json").write_text(json.dumps({"names": names}))
    np.save(folder / "labels.npy", np.arange(len(names)) % 2)


def test_runs_tested_on_different_images_are_not_compared(groups: Groups) -> None:
    for run in (*groups["GAP"], *groups["GSP"]):
        list_images(run, "test", [f"/{run.name}/x/1.jpg", f"/{run.name}/y/2.jpg"])
    comparison_table(groups)  # the same images in other places
    list_images(groups["GSP"][2], "test", ["/x/1.jpg", "/y/3.jpg"])
    with pytest.raises(StoreError, match=r"gap 0 and .*gsp 2 cannot be compared.* test images"):
        comparison_table(groups)
    (groups["GSP"][2] / "evaluation/test/labels.npy").write_bytes(b"")
    with pytest.raises(StoreError, match=r"items\.json, or labels\.npy beside it, is damaged"):
        comparison_table(groups)


def test_groups_must_share_validation_images_which_may_follow_the_seed(groups: Groups) -> None:
    for runs in groups.values():
        for seed, run in enumerate(runs):
            shutil.rmtree(run / "evaluation" / "test")
            list_images(run, "validation", [f"x/{seed}.jpg", "y/0.jpg"])
    read = {name: [read_run(run) for run in runs] for name, runs in groups.items()}
    assert check_comparable(read, "validation") == []
    (note,) = check_comparable({**read, "GSP": read["GSP"][:1]}, "validation")
    assert note == "Some runs were evaluated on other validation images than the rest."
    with pytest.raises(StoreError, match="different validation images"):
        check_comparable({"GAP": read["GAP"][:1], "GSP": read["GSP"][1:]}, "validation")


def test_runs_on_other_numbers_of_images_are_not_compared(tmp_path: Path) -> None:
    counts = {"images": {"test": 40}, "classes": {"test": 2}}
    runs = [
        make_run(tmp_path / "a", **counts),
        make_run(tmp_path / "b", "gap", **{**counts, "images": {"test": 41}}),
    ]
    with pytest.raises(StoreError, match="cannot be compared"):
        comparison_table({"a": runs[:1], "b": runs[1:]})


@pytest.mark.usefixtures("undrawn")
def test_runs_are_linked_to_their_pages(groups: Groups, tmp_path: Path) -> None:
    write_run_page(groups["GSP"][1])
    out = tmp_path / "pages" / "comparison.html"
    page = PageReader(write_comparison_page(groups, out, "Compared").read_text())
    outside = [link for link in page.anchors if not link.startswith("#")]
    assert outside == ["../runs/gsp%201/report.html"]
    assert {link.removeprefix("#") for link in page.anchors if link[0] == "#"} == set(page.ids)


@pytest.mark.usefixtures("undrawn")
def test_unfinished_runs_are_counted_not_averaged(groups: Groups, tmp_path: Path) -> None:
    shutil.rmtree(groups["GSP"][2] / "evaluation")
    for name in ("log.csv", "validation.csv", "run.json"):
        (groups["GSP"][2] / name).unlink()
    (groups["GSP"][2] / "run.json").write_text('{"seed": 2}')
    for run in groups["GAP"]:
        shutil.rmtree(run / "exhibits")
    assert comparison_table(groups).rows[1][:3] == ["GSP", "2 of 3", "31.0 ± 1.4"]
    text = PageReader(write_comparison_page(groups, tmp_path / "c.html", "C").read_text()).text
    assert "No weights were collected for GAP." in text
    assert "not finished" in text


@pytest.mark.usefixtures("undrawn")
def test_nothing_measured_yet_is_said(groups: Groups, tmp_path: Path) -> None:
    for runs in groups.values():
        for run in runs:
            shutil.rmtree(run / "evaluation")
            shutil.rmtree(run / "exhibits")
            (run / "log.csv").unlink()
            (run / "validation.csv").unlink()
    assert comparison_table(groups).rows[0][1:3] == ["0 of 3", "–"]
    text = PageReader(write_comparison_page(groups, tmp_path / "c.html", "C").read_text()).text
    assert "Nothing has been logged yet." in text


def test_validation_counts_where_nothing_was_tested(groups: Groups) -> None:
    for runs in groups.values():
        for run in runs:
            shutil.rmtree(run / "evaluation" / "test")
    table = comparison_table(groups)
    assert "validation set" in table.caption
    assert table.rows[0][2] == "30.0 ± 0.0"


def test_an_empty_group_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="each group must hold a run"):
        write_comparison_page({"GAP": []}, tmp_path / "c.html", "C")
    with pytest.raises(StoreError, match="each group must hold a run"):
        comparison_table({})


def test_runs_that_differ_in_the_seed_alone_are_one_group(groups: Groups) -> None:
    folders = [run for runs in groups.values() for run in runs]
    assert group_runs(folders) == groups
    assert list(group_runs(groups["GSP"])) == ["GSP"]


def test_groups_are_named_by_what_sets_them_apart(groups: Groups) -> None:
    run = groups["GSP"][1]
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("mu: 0.3", "mu: 0.5"))
    found = group_runs(groups["GSP"])
    assert found == {
        "gsp.mu 0.3": [groups["GSP"][0], groups["GSP"][2]],
        "gsp.mu 0.5": [run],
    }
    both = group_runs([*groups["GAP"], *groups["GSP"]])
    assert list(both) == ["GAP", "GSP, gsp.mu 0.3", "GSP, gsp.mu 0.5"]
