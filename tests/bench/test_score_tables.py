import random
from dataclasses import replace

import pytest

from bench.made_up_scores import GAIN, GSP, LITE, MAP, P1, SCORE, moved_scores
from sumpool.bench.report.gain_table import gain_tables
from sumpool.bench.report.published import find
from sumpool.bench.report.score_table import score_tables
from sumpool.bench.report.scores import Incomplete
from sumpool.report.tables import Table
from sumpool.system.files import StoreError


def rows_of(table: Table) -> dict[str, list[str]]:
    return {str(row[0]): list(row[1:]) for row in table.rows}


def test_the_layout_is_that_of_the_papers() -> None:
    scores = moved_scores("5.1", ("cub", "cars196", "sop", "inshop"), 0.0)
    random.Random(0).shuffle(scores)
    [table] = score_tables(scores)
    names = [row[0] for row in table.rows if not row[0].startswith("↳")]
    assert names == [
        "C1, GAP", "C1, XBM + GAP", "C1, XBM + GSP + ZS", "C1, CCP + GAP", "C1, CCP + GSP + ZS",
        "C2, GAP", "C2, GSP + ZS", "MS, GAP", "MS, GSP + ZS", "Triplet, GAP", "Triplet, GSP + ZS",
        "PNCA, GAP", "PNCA, GSP + ZS", "PAnchor, GAP", "PAnchor, GSP + ZS",
    ]  # fmt: skip
    assert table.spans[0] == [("", 1), ("SOP", 4), ("In-shop", 4), ("CUB", 4), ("Cars196", 4)]
    assert table.spans[1] == [("", 1), *[("512-d", 2), ("128-d", 2)] * 4]
    assert table.header == ["", *["P@1", "MAP@R"] * 8]


def test_every_number_stands_over_the_published_one_and_their_difference() -> None:
    [table] = score_tables(moved_scores("5.1", ("cub", "sop"), 0.0123))
    lines = list(table.rows)
    assert len(lines) == 3 * 15
    columns = [(d, n, m) for d in ("sop", "cub") for n in (512, 128) for m in (P1, MAP)]
    places = [(it.loss, it.method) for it in find(table="5.1", data_set="cub", dimension=128,
                                                  metric=MAP)]  # fmt: skip
    for number, (loss, method) in enumerate(places):
        ours, theirs, difference = lines[3 * number : 3 * number + 3]
        assert theirs[0] == "↳ published (5.1)"
        for place, (name, dimension, metric) in enumerate(columns, 1):
            [printed] = find(
                table="5.1", data_set=name, dimension=dimension, metric=metric, loss=loss,
                method=method,
            )  # fmt: skip
            assert printed.std is not None
            spread = f"{100 * printed.std:.2f}"
            assert theirs[place] == f"{100 * printed.mean:.2f} ± {spread}"
            assert ours[place] == f"{100 * (printed.mean + 0.0123):.2f} ± {spread}"
            assert difference[place] == "+1.23"


def test_the_best_of_a_column_stands_out_and_published_numbers_never_do() -> None:
    [table] = score_tables([SCORE, GSP])
    assert set(table.strong) == {(3, 1)}
    [alone] = score_tables([SCORE])
    assert not alone.strong


def test_the_caption_says_protocol_network_combinations_and_source() -> None:
    [table] = score_tables([SCORE, GSP])
    assert table.caption == (
        "Fair protocol; EfficientNet-Lite0: percent, mean ± standard deviation over 81 "
        "combinations of models; published: [thesis], table 5.1 with BN-Inception."
    )


def test_the_steady_protocol_combines_models_too() -> None:
    [table] = score_tables([replace(SCORE, protocol="steady")])
    assert "over 81 combinations of models" in table.caption


def test_conventional_scores_are_labelled_selected_on_the_test_set_everywhere() -> None:
    scores = moved_scores("5.2a", ("cub",), 0.01, count=1)
    gain = replace(
        GAIN, protocol="conventional", loss="c1", method="xbm+gmp+gsp+zs", against="xbm+gap+gmp",
        dimension=512,
    )  # fmt: skip
    for table in (*score_tables(scores), *gain_tables([gain])):
        assert table.caption.startswith("Conventional protocol, selected on the test set; ")
        assert table.caption.count("selected on the test set") == 1
        assert "selected on the test set" in table.latex()


def test_notes_that_the_caption_has_already_are_not_repeated() -> None:
    note = "selected on the test set, best seed"
    scores = [replace(it, note=note) for it in moved_scores("5.2a", ("cub",), 0.01, count=3)]
    [table] = score_tables(scores)
    assert table.caption.count("selected on the test set") == 1
    assert "; best seed; published" in table.caption


def test_a_doubtful_published_number_is_not_shown() -> None:
    [table] = score_tables(moved_scores("5.2a", ("cars196",), 0.0, count=1))
    at = [row[0] for row in table.rows].index("C1, XBM + GMP + GSP + ZS")
    assert [row[2] for row in table.rows[at : at + 3]] == ["36.11", "–", "–"]


def test_protocols_and_networks_have_tables_of_their_own() -> None:
    scores = [SCORE, replace(SCORE, backbone="resnet50"), replace(SCORE, protocol="tuning")]
    captions = [table.caption.split(":")[0] for table in score_tables(scores)]
    assert captions == [
        "Fair protocol; EfficientNet-Lite0",
        "Fair protocol; ResNet-50",
        "Tuning protocol, on validation classes; EfficientNet-Lite0",
    ]


def test_an_incomplete_group_is_missing_not_a_number() -> None:
    waiting = Incomplete("fair", "cub", LITE, "c2", "gsp+zs", 7, 12)
    [table] = score_tables([SCORE], [waiting])
    assert rows_of(table)["C2, GSP + ZS"] == ["–"]
    assert "missing: C2, GSP + ZS on CUB, 7 of 12 runs finished" in table.caption
    assert not table.strong


def test_an_incomplete_group_has_the_row_of_its_options() -> None:
    waiting = Incomplete("fair", "cub", LITE, "c2", "gap", 7, 12, "set gsp.mu=0.5")
    same = replace(SCORE, note="set gsp.mu=0.5; 1 and not 3 seeds")
    [table] = score_tables([SCORE], [waiting])
    assert rows_of(table)["C2, GAP (set gsp.mu=0.5)"] == ["–"]
    assert "missing: C2, GAP (set gsp.mu=0.5) on CUB" in table.caption
    [table] = score_tables([same], [replace(waiting, data_set="sop")])
    assert [row[0] for row in table.rows if not row[0].startswith("↳")] == ["C2, GAP"]


def test_a_data_set_of_which_nothing_is_finished_is_missing_too() -> None:
    waiting = Incomplete("fair", "sop", LITE, "c2", "gap", 0, 12)
    [table] = score_tables([SCORE, replace(SCORE, dimension=512)], [waiting])
    assert table.spans[0] == [("", 1), ("SOP", 2), ("CUB", 2)]
    assert table.rows[0][1:3] == ["–", "–"]
    assert table.rows[1][1:3] == ["45.85 ± 0.31", "41.79 ± 0.26"]
    assert table.rows[2][1:3] == ["–", "–"]


def test_nothing_but_incomplete_groups_makes_a_table_of_missing_numbers() -> None:
    [table] = score_tables([], [Incomplete("fair", "cub", LITE, "c2", "gap", 0, 12)])
    assert table.rows[0][0] == "C2, GAP"
    assert {cell for row in table.rows for cell in row[1:]} == {"–"}


def test_what_is_published_nowhere_has_one_row() -> None:
    other = replace(SCORE, data_set="glyphs", loss="circle", method="gemean")
    [table] = score_tables([other])
    assert [row[0] for row in table.rows] == ["circle, GeMean"]
    assert "published" not in table.caption


def test_other_metrics_are_shown_when_asked_for() -> None:
    other = replace(SCORE, metric="r_precision")
    assert score_tables([SCORE, other])[0].header == ["", "MAP@R"]
    assert score_tables([SCORE, other], metrics=["r_precision"])[0].header == ["", "P@R"]


def test_rows_of_other_counts_say_so() -> None:
    [table] = score_tables([SCORE, replace(GSP, count=1, std=0.0)])
    assert rows_of(table)["C2, GAP (of 81)"] == ["20.00 ± 1.00"]
    assert rows_of(table)["C2, GSP + ZS (of 1)"] == ["21.00"]
    assert "over 1 or 81 combinations" in table.caption


def test_two_scores_of_one_thing_are_refused_unless_a_note_tells_them_apart() -> None:
    with pytest.raises(StoreError, match="two scores are of the same thing"):
        score_tables([SCORE, replace(SCORE, mean=0.3)])
    [table] = score_tables([SCORE, replace(SCORE, mean=0.3, note="gsp.mu 1")])
    assert [row[0] for row in table.rows[::3]] == ["C2, GAP", "C2, GAP (gsp.mu 1)"]


def test_what_was_set_stands_in_the_caption_if_all_have_it_and_else_at_its_row() -> None:
    both = [replace(it, note="set hardware.precision=bf16-mixed") for it in (SCORE, GSP)]
    [table] = score_tables(both)
    assert "; set hardware.precision=bf16-mixed; published" in table.caption
    assert [row[0] for row in table.rows[::3]] == ["C2, GAP", "C2, GSP + ZS"]
    one = replace(GSP, note="set gsp.mu=0.5, gsp.eps=2; 2 and not 3 seeds")
    [table] = score_tables([SCORE, one])
    assert table.rows[3][0] == "C2, GSP + ZS (set gsp.mu=0.5, gsp.eps=2; 2 and not 3 seeds)"
    assert "set" not in table.caption.replace("[thesis]", "")


def test_constants_of_the_method_are_compared_with_the_same_published_ones_alone() -> None:
    notes = ["set gsp.mu=0.5", "set gsp.mu=1, weights=a.pth"]
    scores = [replace(GSP, note=note) for note in notes]
    [table] = score_tables(scores)
    assert [row[0] for row in table.rows] == [
        "C2, GSP + ZS (set gsp.mu=0.5)",
        "C2, GSP + ZS (set gsp.mu=1, weights=a.pth)",
        "↳ published (5.3)",
        "↳ difference",
    ]
    assert table.rows[2][1] == "21.08"
    # Average pooling has no μ: what was set for both makes no other baseline of it.
    [table] = score_tables([replace(SCORE, note=notes[0])])
    assert table.rows[1][1] == "20.58 ± 0.13"


def test_gains_of_set_constants_are_told_apart() -> None:
    other = replace(GAIN, note="set gsp.mu=1", mean=0.02)
    rows = gain_tables([other, GAIN])[0].rows
    assert [(row[0], row[4], row[7]) for row in rows] == [
        ("C2: GSP + ZS over GAP", "+1.00", "+0.95"),
        ("C2: GSP + ZS over GAP (set gsp.mu=1)", "+2.00", "+0.50"),
    ]


def test_what_all_gains_have_in_common_is_said_once() -> None:
    gains = [replace(GAIN, note="set stop.max_steps=30", dimension=it) for it in (128, 512)]
    [table] = gain_tables(gains)
    assert {row[0] for row in table.rows} == {"C2: GSP + ZS over GAP"}
    assert "; set stop.max_steps=30." in table.caption


def test_gains_have_their_interval_and_the_published_gain() -> None:
    [table] = gain_tables([GAIN])
    assert table.rows == [
        ["C2: GSP + ZS over GAP", "CUB", "128", "MAP@R", "+1.00", "[−0.20, +2.20]", "12", "+0.95"]
    ]
    assert "paired by fold and seed, with 95 % confidence intervals" in table.caption
    assert "table 5.1 with BN-Inception" in table.caption


def test_gains_come_in_the_order_of_the_papers() -> None:
    gains = [
        replace(GAIN, loss=loss, data_set=name, dimension=dimension, metric=metric)
        for loss in ("c2", "ms", "zz")
        for name in ("sop", "cub")
        for dimension in (512, 128)
        for metric in (P1, MAP)
    ]
    shuffled = random.Random(1).sample(gains, len(gains))
    assert gain_tables(shuffled)[0].rows == gain_tables(gains)[0].rows
    assert [row[0].split(":")[0] for row in gain_tables(gains)[0].rows[::8]] == ["C2", "MS", "zz"]


def test_a_gain_that_no_table_has_is_missing() -> None:
    [table] = gain_tables([replace(GAIN, method="gemean+gsp+zs")])
    assert table.rows[0][-1] == "–"
    assert "published" not in table.caption


@pytest.mark.parametrize("written", ["markdown", "html", "latex"])
def test_names_of_others_are_escaped(written: str) -> None:
    strange = replace(SCORE, data_set="a|b<c>&d_e%", backbone="x_y&z")
    [table] = score_tables([strange])
    text = getattr(table, written)()
    wanted = {
        "markdown": r"a\|b<c>&d_e% 128-d MAP@R",
        "html": "a|b&lt;c&gt;&amp;d_e%",
        "latex": r"a\textbar{}b\textless{}c\textgreater{}\&d\_e\%",
    }[written]
    assert wanted in text
    if written == "latex":
        assert r"x\_y\&z" in text
