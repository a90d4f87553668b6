"""From a folder of class folders to a model, its metrics, vectors and a page; and being killed."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sumpool.cli import main
from sumpool.models import EmbedderConfig, build_embedder, save_embedder

#: Few steps of a small network, with the published loss and schedule.
SMALL = [
    "--recipe=papers",
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
    """Eight classes of six images in one color each, of different sizes and formats."""
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


def test_constants_of_losses_may_be_whole_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    loss = ["--loss=xbm", "--loss-options.memory-batches=10", "--loss-options.margin=1.0"]
    with pytest.raises(SystemExit, match="0"):
        main(["train", *loss, "--print-config"])
    printed = capsys.readouterr().out
    assert "memory_batches: 10\n" in printed
    assert "margin: 1.0\n" in printed


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.process
def test_a_folder_is_trained_on_evaluated_embedded_and_reported(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--data", str(photos), *SMALL]) == 0
    printed = capsys.readouterr().out
    run = Path("runs/photos-c2-gsp-seed0")
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

    assert main(["evaluate", str(run), "--data", str(photos), "--out", "evaluated"]) == 0
    assert "48" in capsys.readouterr().out
    assert np.load("evaluated/embeddings.npy").shape == (48, 16)
    metrics = json.loads(Path("evaluated/metrics.json").read_text())
    assert 0 <= metrics["mean_average_precision_at_r"] <= metrics["precision_at_1"] <= 1

    assert main(["embed", str(run), "--data", str(photos), "--out", "vectors.parquet"]) == 0
    table = pq.read_table("vectors.parquet")
    assert table.column_names == ["name", "label", "class", "embedding"]
    assert table["class"][0].as_py() == "class 0"
    vectors = np.stack(table["embedding"].to_numpy())
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert main(["embed", str(run), "--data", str(photos), "--out", "vectors.npy"]) == 0
    assert np.array_equal(np.load("vectors.npy"), vectors)
    assert len(Path("vectors.names.csv").read_text().splitlines()) == 49

    (run / "report.html").unlink()
    assert main(["report", str(run)]) == 0
    assert "MAP@R" in (run / "report.html").read_text()
    assert main(["report", str(run), str(run), "--out", "both.html"]) == 1
    assert f"error: {run} is named twice" in capsys.readouterr().err
    shutil.copytree(run, "copy")
    assert main(["report", str(run), "copy", "--out", "both.html"]) == 0
    assert Path("both.html").is_file()

    # The same command again does not touch the first run.
    before = (run / "run.json").read_bytes()
    without = [it for it in SMALL if not it.startswith("--gsp.")]
    assert main(["train", "--data", str(photos), *without, "--pool", "gap"]) == 0
    capsys.readouterr()
    assert main(["train", "--data", str(photos), *SMALL, "--pool", "gap"]) == 1
    assert "options without effect: gsp.… with pool gap" in capsys.readouterr().err
    assert main(["train", "--data", str(photos), *SMALL, "--out", str(run)]) == 1
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "run.json").read_bytes() == before


@pytest.mark.process
def test_a_run_with_chance_constrained_proxies_reports_its_problems(
    photos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*SMALL, "--ccp.proxies=2", "--ccp.candidates=3", "--ccp.patience=1"]
    command = ["train", "--data", str(photos), *options, "--stop.validate-every=1", "--out", "run"]
    assert main(command) == 1
    assert "options ccp.… have no effect without --ccp" in capsys.readouterr().err
    assert main([*command, "--ccp"]) == 0
    lines = Path("run/problems.csv").read_text().splitlines()
    assert lines[0].startswith("problem,first_step,last_step,best_step,value,covering_radius")
    assert len(lines) >= 2
    assert "violat" in Path("run/report.html").read_text()


@pytest.mark.process
def test_a_killed_run_resumes_bit_for_bit(photos: Path) -> None:
    options = [
        *(option for option in SMALL if "max-steps" not in option),
        "--stop.max-steps=60",
        "--checkpoint-seconds=0",
        "--gallery=false",
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


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[Any]) -> None:
    end = time.monotonic() + 300
    while time.monotonic() < end and process.poll() is None:
        if len(list(folder.glob("*.ckpt"))) == 2:
            return
        time.sleep(0.01)
    raise AssertionError("no checkpoint was written in time")


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_group_leaves_a_checkpoint(
    photos: Path, number: signal.Signals
) -> None:
    options = [it for it in SMALL if "max-steps" not in it and "workers" not in it]
    # In the background Ctrl-C may be ignored from the start.
    script = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from sumpool.cli import main; sys.exit(main())"
    )
    command = [sys.executable, "-c", script, "train", "--data", str(photos), "--out", "run"]
    more = ["--hardware.workers=2", "--stop.max-steps=100000", "--checkpoint-seconds=0"]
    with subprocess.Popen(
        [*command, *options, *more, "--stop.patience=100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        wait_for_checkpoint(Path("run/checkpoints"), process)
        os.killpg(process.pid, number)
        printed, errors = process.communicate()
    assert process.returncode == 128 + number
    assert f"stopped by {number.name} after step" in printed
    assert "Traceback" not in errors
    assert json.loads(Path("run/run.json").read_text())["stopped"] == "interrupted"


@pytest.mark.process
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


@pytest.mark.process
@pytest.mark.parametrize("cache", ["none", "ram"])
def test_broken_images_are_reported_before_the_first_step_or_left_out(
    photos: Path, cache: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = (photos / "class 3" / "0.jpg").read_bytes()
    arguments = ["train", "--data", str(photos), *SMALL, "--cache", cache, "--gallery=false"]
    (photos / "class 3" / "8.jpg").write_bytes(b"")
    broken = photos / "class 3" / "9.jpg"
    broken.write_bytes(content[: len(content) // 2])
    assert main([*arguments, "--out", "a"]) == 1
    complaint = capsys.readouterr().err
    assert "cannot read 2 images: " in complaint
    assert str(broken) in complaint
    assert complaint.endswith("; leave such images out with --skip-broken\n")
    assert not Path("a").exists()
    assert main([*arguments, "--out", "b", "--skip-broken"]) == 0
    facts = json.loads(Path("b/run.json").read_text())
    assert facts["broken_images"] == 2
    assert [Path(name).name for name in facts["left_out"]] == ["8.jpg", "9.jpg"]
    page = Path("b/report.html").read_text()
    assert "2 unreadable left out" in page
    assert "class 3/9.jpg (" in page


@pytest.mark.process
def test_a_run_is_not_resumed_with_other_classes(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sumpool.training.interrupts import Interrupts

    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "asked", lambda self, fabric, step: step == 2)
        main(["train", "--data", str(photos), *SMALL, "--out", "run", "--gallery=false"])
    shutil.copytree(photos / "class 3", photos / "another class")
    assert main(["train", "--resume", "run"]) == 1
    assert "are not those that the run began with" in capsys.readouterr().err
    shutil.rmtree(photos / "another class")
    assert main(["train", "--resume", "run"]) == 0


@pytest.mark.process
def test_a_resumed_run_may_leave_out_images_that_broke_since(
    photos: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from sumpool.training.interrupts import Interrupts

    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "asked", lambda self, fabric, step: step == 2)
        main(["train", "--data", str(photos), *SMALL, "--out", "run", "--gallery=false"])
    assert json.loads(Path("run/run.json").read_text())["left_out"] == {}
    (photos / "class 3" / "0.jpg").write_bytes(b"")
    assert main(["train", "--resume", "run"]) == 1
    assert "class 3/0.jpg" in capsys.readouterr().err
    assert main(["train", "--resume", "run", "--skip-broken"]) == 0
    assert json.loads(Path("run/run.json").read_text())["broken_images"] == 1


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
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
        (
            ["--batch-size", "64"],
            "6 classes are left to learn from, but a batch of batch_size 64 with images_per_class "
            "2 needs 32: give --batch-size 12 or less",
        ),
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


def few_images(root: Path, classes: int, images: int) -> Path:
    """``root`` with so many class folders of so many images, all of one color."""
    for number in range(classes):
        folder = root / f"class {number}"
        folder.mkdir(parents=True)
        for image in range(images):
            Image.new("RGB", (64, 64), (30 * number, 20 * image, 99)).save(folder / f"{image}.png")
    return root


@pytest.mark.process
def test_a_run_with_few_images_to_evaluate_ends_with_metrics_and_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = few_images(tmp_path / "few", 5, 4)  # of which two classes are for validation
    # And a test part that is larger.
    few_images(tmp_path / "parts" / "test", 3, 4)
    few.rename(tmp_path / "parts" / "train")
    command = ["train", "--data", "parts", *SMALL, "--batch-size=4", "--gallery=false"]
    assert main([*command, "--out", "run"]) == 0
    with Path("run/validation.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["0", "3", "6"]
    for row in rows:
        assert row["recall_at_2"]
        assert row["mean_average_precision_at_r"]
        assert row["recall_at_4"]
        assert row["recall_at_8"] == ""
    printed = capsys.readouterr().out
    (line,) = (line for line in printed.splitlines() if line.startswith("validation"))
    assert line.split()[4] == "–"
    page = Path("run/report.html").read_text()
    assert "R@8" in page
    assert "validation, before training" in page


def test_classes_of_one_image_to_validate_on_are_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few_images(tmp_path / "parts" / "train", 4, 2)
    few_images(tmp_path / "parts" / "val", 4, 1)
    assert main(["train", "--data", "parts", *SMALL, "--out", "run"]) == 1
    assert "none of the 4 images to search for has another one" in capsys.readouterr().err
    assert not Path("run").exists()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Folder of a small model."""
    config = EmbedderConfig("small_cnn", "none", 8, "gap", resize=36, crop=32)
    save_embedder(build_embedder(config), tmp_path / "model")
    return tmp_path / "model"


def test_few_images_are_evaluated_with_the_ks_there_are(
    tmp_path: Path, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = few_images(tmp_path / "few", 2, 3)
    command = ["evaluate", str(model), "--data", str(few), "--workers=0"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "R@4" in printed
    assert "R@8" not in printed
    assert main([*command, "--ks", "100"]) == 1
    assert "error: ks must be at most 5, the images a query can find" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["tpu", "cuda:97", "xla", "cuda:x"])
def test_a_device_that_is_not_there_is_refused(
    photos: Path, model: Path, device: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(model), "--data", str(photos), "--device", device]) == 1
    complaint = f"error: device must be cpu or an available CUDA device, got {device}\n"
    assert complaint in capsys.readouterr().err


def test_a_model_that_is_none_is_named(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def complaint(folder: str) -> str:
        assert main(["evaluate", folder, "--data", str(photos)]) == 1
        return capsys.readouterr().err

    assert "error: there is no folder nowhere" in complaint("nowhere")
    assert f"error: {photos} holds neither a run nor a model" in complaint(str(photos))
    run = Path("a run")
    run.mkdir()
    (run / "run.json").write_text("{}")
    unfinished = complaint(str(run))
    assert "error: the run a run has no model yet" in unfinished
    assert "sumpool train --resume 'a run'" in unfinished


@pytest.mark.parametrize("option", ["--split", "--gallery"])
def test_a_split_that_the_data_lacks_is_refused_with_those_it_has(
    photos: Path, model: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(model), "--data", str(photos), option, "test"]) == 1
    complaint = f"error: {photos} has no split test: it has all (format folder)\n"
    assert complaint in capsys.readouterr().err
