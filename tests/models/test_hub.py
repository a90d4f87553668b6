"""Models go to the Hub and come from it with their card; nothing here needs a network."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml

import sumpool
from models.documented_export import example
from models.tiny import config, embedder, images, pictures
from report.fake_runs import make_run
from sumpool.models import Embedder, ModelError, save_embedder
from sumpool.models.card import interval, starting_weights
from sumpool.system.files import StoreError


class FakeHub:
    """Repositories as folders, behind the functions of huggingface_hub."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[dict[str, Any]] = []

    def api(self, token: str | None = None) -> SimpleNamespace:
        def create_repo(name: str, **options: Any) -> str:
            self.calls.append({"name": name, "token": token, **options})
            (self.root / name).mkdir(parents=True, exist_ok=True)
            return f"https://hub/{name}"

        def upload_folder(*, repo_id: str, folder_path: Path, commit_message: str) -> None:
            shutil.copytree(folder_path, self.root / repo_id, dirs_exist_ok=True)

        return SimpleNamespace(create_repo=create_repo, upload_folder=upload_folder)

    def snapshot_download(self, name: str, **options: Any) -> str:
        self.calls.append({"name": name, **options})
        if not (self.root / name).is_dir():
            raise OSError(f"404:\nno repository {name}")
        return str(self.root / name)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "HfApi", fake.api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    return fake


def test_a_pushed_model_comes_back_bit_for_bit(hub: FakeHub) -> None:
    model = embedder().eval()
    assert model.push_to_hub("birds/jay", private=True, token="t") == "https://hub/birds/jay"
    assert hub.calls[0] == {"name": "birds/jay", "token": "t", "private": True, "exist_ok": True}
    assert sorted(it.name for it in (hub.root / "birds/jay").iterdir()) == [
        *("README.md", "model.json", "model.safetensors"),
    ]
    for loaded in (
        Embedder.from_pretrained(Path("hf://birds/jay")),
        sumpool.load("hf://birds/jay@v1"),
    ):
        assert torch.equal(loaded(images(model)), model(images(model)))
    assert [it["revision"] for it in hub.calls[1:]] == [None, "v1"]
    assert hub.calls[1]["allow_patterns"] == ["model.json", "model.safetensors"]


def test_what_is_published_names_no_local_folder(tmp_path: Path) -> None:
    model = embedder()
    model.config = replace(model.config, weights=str(tmp_path / "client" / "w.pth"))
    model.save_pretrained(tmp_path / "out")
    written = (tmp_path / "out" / "model.json").read_text()
    assert json.loads(written)["config"]["weights"] == "w.pth"
    with pytest.raises(StoreError, match="holds no run"):
        model.save_pretrained(tmp_path / "other", run=tmp_path)
    assert not (tmp_path / "other").exists()


def test_what_the_hub_refuses_is_one_line(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="hf://no/body could not be downloaded: 404: no repos"):
        Embedder.from_pretrained("hf://no/body")
    with pytest.raises(ModelError, match=r"hf://organization/name@revision, got hf://body"):
        Embedder.from_pretrained("hf://body")
    with pytest.raises(ModelError, match="name must be organization/name, got 'body'"):
        embedder().push_to_hub("body")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"need huggingface_hub: pip install 'sumpool\[hub\]'"):
        embedder().push_to_hub("birds/jay")


def test_the_documented_lines_run(
    hub: FakeHub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save_embedder(embedder(), make_run(Path("runs/photos")) / "model")
    for name, picture in zip(("one.jpg", "two.jpg"), pictures((40, 40), (50, 40)), strict=True):
        picture.save(name)
    exec(example("push_to_hub"), {})
    assert "tensor([[1.0" in capsys.readouterr().out
    assert Path("photos-model/README.md").is_file()
    assert (hub.root / "organization/photos/weights.jpg").is_file()


def head(card: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_the_card_has_data_protocol_scores_and_weights_of_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", data_set="birds")
    embedder().save_pretrained(tmp_path / "out", run=run)
    text = (tmp_path / "out" / "README.md").read_text()
    for said in ("trained on birds", "selected on the validation set", "95 % interval over"):
        assert said in text
    assert "/photos" not in text  # folders of whoever trained it
    results = head(text)["model-index"][0]["results"]
    scores = {it["dataset"]["split"]: it["metrics"][0]["value"] for it in results}
    assert scores == {"test": 0.55, "validation": 0.6}
    assert (tmp_path / "out" / "weights.jpg").read_bytes()[:2] == b"\xff\xd8"
    assert "(weights.jpg)" in text


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            {"validation": 0, "test": 0},
            "not trained on any class of the validation or the test set.",
        ),
        (
            {"validation": 2, "test": 0},
            "Classes that it was also trained on: 2 of the validation set.",
        ),
    ],
)
def test_the_card_says_which_classes_were_trained_on(
    tmp_path: Path, seen: dict[str, int], said: str
) -> None:
    run = make_run(tmp_path / "run", trained_classes=seen)
    embedder().save_pretrained(tmp_path / "out", run=run)
    assert said in (tmp_path / "out" / "README.md").read_text()


def test_a_card_without_a_run_says_so(tmp_path: Path) -> None:
    embedder(pooling="gap").save_pretrained(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "without the run that trained the model" in text
    assert "model-index" not in head(text)
    assert not (tmp_path / "weights.jpg").exists()
    with pytest.raises(StoreError, match="holds no run"):
        embedder().save_pretrained(tmp_path / "out", run=tmp_path)


def test_average_pooling_has_no_weights_to_show(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", pool="gap")
    embedder(pooling="gap").save_pretrained(tmp_path / "out", run=run)
    assert not (tmp_path / "out" / "weights.jpg").exists()


@pytest.mark.parametrize(
    ("values", "name", "said"),
    [
        ({}, None, "random weights"),
        ({"backbone": "tf_efficientnet_lite0", "weights": "packaged"}, "apache-2.0", "the package"),
        ({"backbone": "resnet50.a1_in1k", "weights": "timm"}, "apache-2.0", "timm's weights"),
        ({"weights": "some.pth"}, "other", "not known"),
    ],
)
def test_the_license_is_that_of_the_starting_weights(
    values: dict[str, str], name: str | None, said: str
) -> None:
    found, sentence = starting_weights(config(**values))
    assert found == name
    assert said in sentence


def test_the_interval_holds_the_share_and_stays_a_share() -> None:
    for share in (0.0, 0.3, 1.0):
        low, high = interval(share, 50)
        assert -1e-12 <= low <= share + 1e-12
        assert share - 1e-12 <= high <= 1 + 1e-12
