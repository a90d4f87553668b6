import html
import io
from dataclasses import replace

import pytest
from PIL import Image

from bench.made_up_scores import GAIN, GSP, LITE, MAP, SCORE, moved_scores
from sumpool.bench.methods import baseline
from sumpool.bench.report.figure import draw, improvements
from sumpool.bench.report.labels import method_name, method_place
from sumpool.bench.report.page import bench_pictures, latex_text, markdown_text, page_text
from sumpool.bench.report.published import find
from sumpool.bench.report.score_table import score_tables
from sumpool.report.plots import picture

SETTING = ("fair", LITE, 128)


def test_an_improvement_is_the_gain_over_the_baselines_score() -> None:
    [found] = improvements([SCORE, GSP], [GAIN], *SETTING)
    assert found.ours == pytest.approx(0.21 / 0.2 - 1)
    assert found.interval == pytest.approx((-0.01, 0.11))
    assert found.published is not None
    assert found.published.relative == pytest.approx(21.53 / 20.58 - 1)


def test_published_scores_improve_as_published() -> None:
    scores = moved_scores("5.1", ("cub", "sop", "inshop", "cars196"), 0.0)
    found = improvements(scores, [], *SETTING)
    assert len(found) == 4 * (4 + 5)
    for it in found:
        one, other = (
            find(table="5.1", data_set=it.data_set, loss=it.loss, method=method, dimension=128,
                 metric=MAP)[0].mean
            for method in (it.method, it.against)
        )  # fmt: skip
        assert it.ours == pytest.approx(one / other - 1)
        assert it.published is not None
        assert it.published.relative == pytest.approx(it.ours)
        assert it.interval is None


def test_other_protocols_networks_and_dimensions_stay_out() -> None:
    others = [
        replace(score, **change)
        for score in (SCORE, GSP)
        for change in ({"protocol": "tuning"}, {"backbone": "x"}, {"dimension": 512},
                       {"metric": "precision_at_1"})
    ]  # fmt: skip
    assert improvements(others, [], *SETTING) == []
    assert len(improvements([*others, SCORE, GSP], [], *SETTING)) == 1


def test_set_constants_make_improvements_of_their_own() -> None:
    scores = [SCORE, GSP, replace(GSP, mean=0.24, note="set gsp.mu=1")]
    gains = [GAIN, replace(GAIN, note="set gsp.mu=1", low=0.03, high=0.05)]
    found = improvements(scores, gains, *SETTING)
    assert [it.settings for it in found] == ["", "gsp.mu=1"]
    assert [it.ours for it in found] == pytest.approx([0.05, 0.2])
    # Its baseline was trained without: no pairs.
    assert [it.interval is None for it in found] == [False, True]
    published = [it.published.ours.mean for it in found if it.published]
    assert published == [0.2153, 0.2108]


def test_an_option_of_the_whole_grid_changes_no_method() -> None:
    scores = [replace(it, note="set hardware.precision=bf16-mixed") for it in (SCORE, GSP)]
    [found] = improvements(scores, [replace(GAIN, note=scores[0].note)], *SETTING)
    assert (found.settings, found.interval) == ("", pytest.approx((-0.01, 0.11)))


def test_a_baseline_has_the_same_training_options() -> None:
    scores = [
        replace(it, mean=it.mean + more, note=f"set optimizer.lr={lr}")
        for lr, more in (("1e-4", 0.0), ("3e-5", 0.1))
        for it in (SCORE, GSP)
    ]
    gains = [replace(GAIN, note=it.note) for it in scores[::2]]
    found = improvements(scores, gains, *SETTING)
    assert [it.options for it in found] == [("optimizer.lr=1e-4",), ("optimizer.lr=3e-5",)]
    assert [it.ours for it in found] == pytest.approx([0.05, 0.31 / 0.3 - 1])
    assert all(it.interval for it in found)
    # Without one of the same options there is nothing to be over.
    assert improvements([scores[0], scores[3]], gains, *SETTING) == []


def test_baselines() -> None:
    ran = ["gap", "gsp", "gsp+zs", "gap+gmp", "gmp+gsp+zs", "ccp+gap", "ccp+gsp+zs", "xbm+gap",
           "xbm+gsp+zs", "gap+reg:r1", "gmp", "ccp+gap+gmp"]  # fmt: skip
    expected = [None, "gap", "gap", None, "gap+gmp", "gap", "ccp+gap", "gap", "xbm+gap", "gap",
                "gap", "gap+gmp"]  # fmt: skip
    assert [baseline(method, ran) for method in ran] == expected
    assert baseline("xbm+gsp+zs", ["gap", "xbm+gsp+zs"]) == "gap"
    assert baseline("gsp+zs", ["gsp+zs"]) is None


def test_methods_come_in_the_order_of_the_papers() -> None:
    methods = ["ccp+gsp+zs", "ccp+gap", "xbm+gsp+zs", "gsp+zs", "gmp", "xbm+gap", "gap", "gap"]
    assert sorted(set(methods), key=method_place) == [
        "gap", "gmp", "gsp+zs", "xbm+gap", "xbm+gsp+zs", "ccp+gap", "ccp+gsp+zs",
    ]  # fmt: skip
    assert method_name("ccp+netvlad+zs+reg:r2-far") == "CCP + NetVLAD + ZS + r2-far"


@pytest.mark.drawn
def test_the_figure_is_an_image_as_wide_as_there_are_data_sets() -> None:
    widths = []
    for sets in (("cub",), ("cub", "sop")):
        found = improvements(moved_scores("5.1", sets, 0.01), [GAIN], *SETTING)
        figure = draw(found, protocol="fair", backbone=LITE, dimension=128)
        with Image.open(io.BytesIO(picture(figure, "").png)) as image:
            assert image.format == "PNG"
            widths.append(image.width)
            colors = image.convert("RGB").getcolors(1 << 24)
            assert colors is not None
            assert (0x00, 0x72, 0xB2) in {color for _, color in colors}
    assert widths[1] > 1.4 * widths[0]


def test_nothing_to_draw_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one improvement"):
        draw([], protocol="fair", backbone=LITE, dimension=128)


def test_there_is_a_picture_for_each_setting_with_an_improvement() -> None:
    scores = [
        *moved_scores("5.1", ("cub",), 0.01),
        *moved_scores("5.2a", ("cub",), 0.0, backbone="a/b", count=1),
        replace(SCORE, backbone="alone"),
    ]
    pictures = bench_pictures(scores, [])
    assert list(pictures) == ["conventional-a-b-512", f"fair-{LITE}-128", f"fair-{LITE}-512"]
    assert "selected on the test set" in pictures["conventional-a-b-512"].alt


def test_a_page_holds_tables_and_pictures_and_loads_nothing() -> None:
    scores = [replace(it, data_set="a<b") for it in (SCORE, GSP)]
    pictures = bench_pictures(scores, [])
    page = page_text(score_tables(scores), list(pictures.values()))
    assert page.startswith("<!DOCTYPE html>")
    assert page.count("<table>") == page.count("<img ") == 1
    assert "a&lt;b" in page
    assert "a<b" not in page
    assert 'src="data:image/png;base64,' in page
    assert "http" not in page
    assert html.escape(score_tables(scores)[0].caption) in page


def test_texts_have_all_tables_with_their_captions() -> None:
    tables = score_tables([SCORE, replace(SCORE, backbone="resnet50")])
    text = markdown_text(tables)
    assert text.count("| --- |") == 2
    assert text.startswith("Fair protocol; EfficientNet-Lite0: ")
    assert latex_text(tables).count(r"\begin{tabular}") == 2
    assert r"\usepackage{booktabs}" in latex_text(tables)
