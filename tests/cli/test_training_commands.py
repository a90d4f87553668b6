"""From a folder of class folders to a model, its metrics, vectors and a page; and being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sumpool.cli import main

#: Few steps of a small network.
SMALL = [
    "--backbone=small_cnn",
    "--embedding-size=16",
    "--gsp.prototypes=4",
    "--batch-size=8",
    "--images-per-class=2",
    "--optimizer.lr=1e-3",
    "--stop.validate-every=3",
    "--stop.max-steps=6",
    "--hardware.accelerator=cpu",
    "--hardware.workers=0",
]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Eight classes of six images in one colour each, of different sizes and formats."""
    random = np.random.default_rng(0)
    root = tmp_path / "photos"
    for number in range(8):
        folder = root / f"class {number}"
        folder.mkdir(parents=True)
        color = random.uniform(40, 215, 3)
        for image in range(6):
            height, width = random.integers(64, 96, 2)
            noisy = color + random.normal(0, 25, (height, width, 3))
            pixels = np.clip(noisy, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{image}.{'png' if image % 2 else 'jpg'}")
    return root


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_folder_is_trained_on_evaluated_embedded_and_reported(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", str(photos), *SMALL]) == 0
    printed = capsys.readouterr().out
    run = Path("runs/folder-c2-gsp-seed0")
    assert "6 steps, ended by max_steps" in printed
    assert "MAP@R [%]" in printed
    assert f"page: {run / 'report.html'}" in printed
    for name in ("config.yaml", "run.json", "log.csv", "validation.csv", "report.html"):
        assert (run / name).is_file(), name
    facts = json.loads((run / "run.json").read_text())
    assert facts["classes"] == {"train": 6, "validation": 2}
    assert facts["finished"]
    metrics = json.loads((run / "evaluation/validation/metrics.json").read_text())
    assert metrics["queries"] == 12

    assert main(["evaluate", str(run), "--data", str(photos), "--out", "judged"]) == 0
    assert "48" in capsys.readouterr().out
    assert np.load("judged/embeddings.npy").shape == (48, 16)
    judged = json.loads(Path("judged/metrics.json").read_text())
    assert 0 <= judged["mean_average_precision_at_r"] <= judged["precision_at_1"] <= 1

    assert main(["embed", str(run), "--data", str(photos), "--out", "vectors.parquet"]) == 0
    table = pq.read_table("vectors.parquet")
    assert table.column_names == ["name", "label", "class", "embedding"]
    assert table["class"][0].as_py() == "class 0"
    vectors = np.stack(table["embedding"].to_numpy())
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert main(["embed", str(run), "--data", str(photos), "--out", "vectors.npy"]) == 0
    assert np.array_equal(np.load("vectors.npy"), vectors)
    assert len(Path("vectors.csv").read_text().splitlines()) == 49

    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert "MAP@R" in (run / "report.html").read_text()
    assert main(["report", str(run), str(run), "--out", "both.html"]) == 0
    assert Path("both.html").is_file()

    # The same command again does not touch the first run.
    before = (run / "run.json").read_bytes()
    assert main(["train", "--data", str(photos), *SMALL, "--pool", "gap"]) == 0
    assert main(["train", "--data", str(photos), *SMALL, "--out", str(run)]) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "run.json").read_bytes() == before


def test_a_run_with_chance_constrained_proxies_tells_of_its_problems(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [*SMALL, "--chance.proxies=2", "--chance.pool=3", "--chance.patience=1"]
    command = ["train", "--data", str(photos), *told, "--stop.validate-every=1", "--out", "run"]
    assert main(command) == 1
    assert "options chance.… have no effect without --ccp" in capsys.readouterr().err
    assert main([*command, "--ccp"]) == 0
    lines = Path("run/problems.csv").read_text().splitlines()
    assert lines[0].startswith("problem,first_step,last_step,best_step,value,covering_radius")
    assert len(lines) >= 2
    assert "violat" in Path("run/report.html").read_text()


def test_a_killed_run_is_resumed_to_the_same_bits(photos: Path) -> None:
    options = [
        *(option for option in SMALL if "max-steps" not in option),
        "--stop.max-steps=60",
        "--checkpoint-seconds=0",
        "--exhibits=false",
    ]
    # Processes of their own, so that all begin with the same state.
    start = "import sys; from sumpool.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", start, "train"]
    whole = subprocess.Popen([*command, "--data", str(photos), *options, "--out", "whole"])
    with subprocess.Popen(
        [*command, "--data", str(photos), *options, "--out", "killed"]
    ) as process:
        wait_for_checkpoint(Path("killed/checkpoints"), process)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert json.loads(Path("killed/run.json").read_text())["finished"] is None
    subprocess.run([*command, "--resume", "killed"], check=True)
    assert whole.wait() == 0
    for name in ("model/model.safetensors", "evaluation/validation/embeddings.npy"):
        assert (Path("whole") / name).read_bytes() == (Path("killed") / name).read_bytes(), name
    assert main(["train", "--resume", "killed", "--seed", "3"]) == 1


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        if len(list(folder.glob("*.ckpt"))) == 2:
            return
        time.sleep(0.01)
    raise AssertionError("no checkpoint was written in time")


def test_a_signal_leaves_a_checkpoint_and_says_so(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sumpool.training.loop import Trainer

    step = Trainer._step

    def interrupted(self: Trainer, batch: object) -> object:
        if self.progress.step == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", interrupted)
        assert main(["train", "--data", str(photos), *SMALL, "--out", "run"]) == 130
    printed = capsys.readouterr().out
    assert "stopped by SIGINT after step 4" in printed
    assert "sumpool train --resume run" in printed
    assert Path("run/model/model.safetensors").is_file()
    assert main(["train", "--resume", "run"]) == 0


@pytest.mark.parametrize("cache", ["none", "ram"])
def test_a_broken_image_is_named_or_counted(
    photos: Path, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = photos / "class 3" / "9.jpg"
    broken.write_bytes((photos / "class 3" / "0.jpg").read_bytes()[:500])
    arguments = ["train", "--data", str(photos), *SMALL, "--cache", cache, "--exhibits=false"]
    if cache == "ram":
        assert main([*arguments, "--out", "a"]) == 1
        assert str(broken) in capsys.readouterr().err
        assert not Path("a").exists()
    assert main([*arguments, "--out", "b", "--skip-broken"]) == 0
    assert json.loads(Path("b/run.json").read_text())["broken_images"] == 1


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("empty class", "class 9"),
        ("class of one", "class 9/only.png"),
        ("no such folder", "photos/absent"),
    ],
)
def test_data_that_cannot_be_used_is_named(
    photos: Path, damage: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photos
    if damage == "no such folder":
        data = photos / "absent"
    else:
        (photos / "class 9").mkdir()
        if damage == "class of one":
            Image.new("RGB", (64, 64)).save(photos / "class 9" / "only.png")
    # Seed 1 keeps class 9 for training.
    assert main(["train", "--data", str(data), *SMALL, "--out", "run", "--seed", "1"]) == 1
    assert complaint in capsys.readouterr().err
    assert not Path("run").exists()


def test_a_table_with_an_unknown_path_is_named(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = photos / "table.csv"
    table.write_text("path,label\nclass 0/0.jpg,a\nclass 0/absent.jpg,a\n")
    assert main(["train", "--data", str(table), *SMALL]) == 1
    complaint = capsys.readouterr().err
    assert "absent.jpg" in complaint
    assert "table.csv" in complaint


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--loss", "c3"], "loss must be one of"),
        (["--cache", "gpu"], "cache gpu needs a CUDA device"),
        (["--backbone", "resnet5000"], "did you mean"),
        (["--hardware.cuda-graph"], "cuda_graph needs one CUDA device"),
        (["--batch-size", "64"], "cannot be drawn"),
        (["--loss-options", '{"margins": 3}'], "margins"),
    ],
)
def test_options_that_cannot_be_followed_are_refused_before_training(
    photos: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", str(photos), *SMALL, "--out", "run", *arguments]) == 1
    assert complaint in capsys.readouterr().err
    assert not Path("run").exists()


def test_options_come_from_files_and_unknown_ones_are_errors(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("run.yaml").write_text("loss: ms\nstop:\n  patience: 2\n")
    with pytest.raises(SystemExit) as end:
        main(["train", "--config", "run.yaml", "--loss", "c1", "--print_config"])
    assert end.value.code == 0
    printed = capsys.readouterr().out
    assert "loss: c1" in printed
    assert "patience: 2" in printed
    Path("bad.yaml").write_text("stop:\n  patients: 2\n")
    with pytest.raises(SystemExit) as end:
        main(["train", "--config", "bad.yaml"])
    assert end.value.code == 2
    assert "patients" in capsys.readouterr().err


def test_a_model_that_is_none_is_named(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "nowhere", "--data", str(photos)]) == 1
    assert "nowhere" in capsys.readouterr().err
