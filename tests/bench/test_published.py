from importlib.resources import files

import pytest

from sumpool.bench.report.published import (
    beside,
    find,
    published_gain,
    published_scores,
    published_steps,
)
from sumpool.data import DATASETS
from sumpool.losses import LOSSES
from sumpool.models import BACKBONES
from sumpool.pooling import POOLINGS
from sumpool.training.config import TrainConfig, flat

MAP, P1 = "mean_average_precision_at_r", "precision_at_1"
SETS = ("sop", "inshop", "cub", "cars196")


def test_every_number_of_the_tables_is_there() -> None:
    counts = {"5.1": 15 * 16, "3.1": 13 * 16, "5.3": 4 * 8, "5.4": 9 * 2}
    for table, count in counts.items():
        assert len(find(table=table)) == count
    assert len(find(table="3.2a")) == 9 * 4 - 4
    assert len(find(table="3.2b")) == 10 * 4 - 5
    assert len(find(table="5.2a")) == 7 * 4 - 3 + 2 * 4
    assert len(find(table="5.2b")) == 12 * 4 - 5 + 4 * 4 + 3
    assert len(published_scores()) == 660


def test_every_file_beside_the_module_is_read() -> None:
    found = [entry.name for entry in files("sumpool.bench.report.published").iterdir()]
    tables = {name.removeprefix("thesis-")[:3] for name in found if name.endswith(".csv")}
    assert tables == {score.table[:3] for score in published_scores()} | {"3.3"}


def test_proxies_take_a_tenth_to_a_third_more_steps_as_the_text_says() -> None:
    found = {(it.data_set, it.loss, it.method): it for it in published_steps()}
    assert len(found) == len(published_steps()) == 10 * 2
    for data_set in ("sop", "inshop"):
        for loss in ("c2", "ms", "triplet"):
            more = found[data_set, loss, "ccp+gap"].steps / found[data_set, loss, "gap"].steps
            assert 1.1 <= more < 1.6  # 1.58 for Triplet on In-shop, where the text has 35 %
    for it in found.values():
        assert it.loss in LOSSES
        assert _pooling(it.method) in POOLINGS


def test_no_setting_has_two_scores_in_one_table() -> None:
    keys = [
        (one.table, one.protocol, one.data_set, one.backbone, one.dimension, one.metric)
        + ((one.row,) if one.quoted else (one.loss, one.method, one.settings))
        for one in published_scores()
    ]
    assert len(set(keys)) == len(keys)


def test_names_are_those_of_the_catalogues() -> None:
    for score in published_scores():
        assert score.protocol in ("fair", "conventional", "tuning")
        assert score.data_set in DATASETS
        assert score.backbone in BACKBONES or score.backbone == "resnet50"
        assert score.dimension in (128, 512)
        assert score.metric in (MAP, P1)
        assert score.source == "thesis"
        assert score.page in (42, 44, 85, 87, 88, 91)
        assert bool(score.loss) == bool(score.method)
        if not score.quoted:
            assert score.loss in LOSSES
            assert _pooling(score.method) in POOLINGS
        for setting in score.settings.split():
            assert setting.split("=")[0] in flat(TrainConfig())


def _pooling(method: str) -> str:
    return method.removeprefix("ccp+").removeprefix("xbm+").removesuffix("+zs")


def test_scores_lie_in_the_range_of_the_field() -> None:
    for score in published_scores():
        low, high = (0.15, 0.65) if score.metric == MAP else (0.55, 0.93)
        assert low < score.mean < high
        assert score.std is None or 0 < score.std < 0.007


def test_map_at_r_lies_below_precision_and_short_embeddings_below_long_ones() -> None:
    scores = {
        (one.table, one.row, one.backbone, one.quoted, one.data_set, one.dimension, one.metric): one
        for one in published_scores()
        if one.protocol != "tuning"
    }
    pairs = 0
    for (*key, dimension, metric), one in scores.items():
        precision = scores.get((*key, dimension, P1))
        if metric == MAP and precision is not None:
            assert one.mean < precision.mean
            pairs += 1
        if one.protocol == "fair" and dimension == 512:
            assert one.mean > scores[(*key, 128, metric)].mean
            pairs += 1
    assert pairs == 8 * 15 + 8 * 13 + 2 * 4 + 4 * 4 + 3 + 8 * 15 + 8 * 13 + 4 * 4


def test_gsp_gains_but_in_the_one_case_that_the_text_names() -> None:
    losing = []
    for name in SETS:
        for dimension in (128, 512):
            for loss in ("c2", "ms", "triplet", "pnca", "panchor"):
                gain = published_gain("fair", name, loss, "gsp+zs", "gap", dimension, MAP)
                assert gain is not None
                if gain.difference <= 0:
                    losing.append((name, loss, dimension))
            for kind in ("xbm", "ccp"):
                gain = published_gain(
                    "fair", name, "c1", f"{kind}+gsp+zs", f"{kind}+gap", dimension, MAP
                )
                assert gain is not None
                assert 0 < gain.difference < 0.0215
    assert losing == [("inshop", "pnca", 128)]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("loss", ["c1", "c2", "ms", "triplet"])
def test_chance_constrained_proxies_gain_everywhere(name: str, loss: str) -> None:
    for dimension in (128, 512):
        gain = published_gain("fair", name, loss, "ccp+gap", "gap", dimension, MAP)
        assert gain is not None
        assert gain.difference > 0.007
        assert gain.ours.table == gain.theirs.table == ("5.1" if loss == "c1" else "3.1")


def test_corners_of_the_component_table_are_those_of_the_main_one() -> None:
    differing = []
    for method in ("gap", "gsp+zs"):
        for corner in find(table="5.3", method=method, settings=""):
            main = beside("fair", corner.data_set, "c2", method, corner.dimension, MAP)
            assert main is not None
            assert main.table == "5.1"
            if main.mean != corner.mean:
                differing.append((corner.data_set, corner.dimension, main.mean, corner.mean))
    assert differing == [("cub", 128, 0.2153, 0.2152)]


@pytest.mark.parametrize(
    ("wanted", "mean", "std"),
    [
        ({"table": "5.1", "row": "C2", "data_set": "cub", "dimension": 512}, 25.95, 0.21),
        ({"table": "5.1", "row": "C2+GSP", "data_set": "cub", "dimension": 512}, 27.12, 0.27),
        ({"table": "5.1", "row": "C1", "data_set": "sop", "dimension": 512}, 40.40, 0.15),
        ({"table": "5.1", "row": "PNCA+GSP", "data_set": "cars196", "dimension": 128}, 19.2, 0.17),
        ({"table": "5.1", "row": "C1+CCP+GSP", "data_set": "sop", "dimension": 512}, 51.59, 0.04),
        ({"table": "5.1", "row": "C1+XBM+GSP", "data_set": "cub", "dimension": 128}, 20.60, 0.16),
        ({"table": "5.1", "row": "Triplet", "data_set": "sop", "dimension": 512}, 45.88, 0.3),
        ({"table": "3.1", "row": "MS+CCP-L", "data_set": "inshop", "dimension": 512}, 63.59, None),
        ({"table": "3.1", "row": "Triplet", "data_set": "cars196", "dimension": 128}, 15.68, None),
        ({"table": "5.3", "row": "C2+ZSP", "data_set": "cub", "dimension": 512}, 26.49, None),
        ({"table": "5.2a", "row": "C1+XBM+GSP", "data_set": "inshop"}, 63.25, None),
        ({"table": "5.2b", "row": "PAnchor+DIML", "data_set": "sop"}, 43.04, None),
    ],
)  # fmt: skip
def test_spot_values(wanted: dict[str, object], mean: float, std: float | None) -> None:
    [score] = find(metric=MAP, **wanted)
    assert 100 * score.mean == pytest.approx(mean, abs=1e-9)
    assert score.std is None if std is None else score.std == pytest.approx(std / 100)


@pytest.mark.parametrize(
    ("wanted", "mean"),
    [
        ({"table": "3.2a", "row": "C2+CCP-L", "data_set": "cub"}, 69.87),
        ({"table": "3.2b", "row": "MS+CCP-L", "data_set": "inshop"}, 92.71),
        ({"table": "3.2b", "row": "ProxyAnchor", "data_set": "inshop"}, 92.10),
        ({"table": "5.2b", "row": "MS+Metrix", "data_set": "cub"}, 71.40),
        ({"table": "5.1", "row": "C1", "data_set": "sop", "dimension": 512}, 69.29),
        (
            {"table": "3.1", "row": "SoftTriplet-S/L", "data_set": "cars196", "dimension": 128},
            73.16,
        ),
    ],
)
def test_spot_values_of_precision(wanted: dict[str, object], mean: float) -> None:
    [score] = find(metric=P1, **wanted)
    assert 100 * score.mean == pytest.approx(mean, abs=1e-9)


def test_screening_has_what_differs_from_the_usual_constants() -> None:
    [pair] = find(table="5.4", loss="c2", settings="gsp.prototypes=16 gsp.eps=0.5")
    [proxy] = find(table="5.4", loss="pnca", row=pair.row, settings="gsp.prototypes=16")
    assert pair.row == "m = 16, μ = 0.3, ε = 0.5, λ = 0.1"
    assert (pair.protocol, pair.method, pair.mean, proxy.mean) == (
        "tuning",
        "gsp+zs",
        0.4063,
        0.4059,
    )


def test_doubtful_and_quoted_scores_are_set_beside_nothing() -> None:
    assert [(one.table, one.mean) for one in published_scores() if one.doubt] == [("5.2a", 0.3611)]
    key = ("conventional", "cars196", "c1", "xbm+gmp+gsp+zs", 512)
    assert beside(*key, MAP) is None
    precision = beside(*key, P1)
    assert precision is not None
    assert precision.mean == 0.7907
    assert beside("conventional", "cub", "", "", 512, P1) is None


def test_the_score_of_the_same_network_comes_first() -> None:
    key = ("conventional", "cub", "c2", "ccp+gap+gmp", 512, P1)
    means = [
        one.mean
        for backbone in ("resnet50", "bn_inception", "tf_efficientnet_lite0")
        if (one := beside(*key, backbone=backbone)) is not None
    ]
    assert means == [0.7104, 0.6987, 0.6987]


def test_settings_that_differ_are_not_taken_for_the_usual_ones() -> None:
    usual = beside("fair", "cub", "c2", "gsp+zs", 512, MAP, tables=["5.3"])
    average = beside("fair", "cub", "c2", "gsp+zs", 512, MAP, settings="gsp.mu=1")
    assert usual is not None
    assert average is not None
    assert (usual.mean, average.mean) == (0.2712, 0.2649)


def test_an_unknown_attribute_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match=r"among source, table, .*, got dataset"):
        find(dataset="cub")


def test_no_gain_is_formed_across_tables() -> None:
    # C2+CCP is in table 3.1 and C2+GSP in 5.1: no table has both.
    assert published_gain("fair", "cub", "c2", "gsp+zs", "ccp+gap", 128, MAP) is None
