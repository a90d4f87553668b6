"""The commands on the pages: all of them parse, and those that need no special machine run."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import sumpool
from serve.served import served
from sumpool.cli import main
from sumpool.cli.entry import build_parser
from sumpool.cli.options import normalize_arguments
from sumpool.training.config import flat_switches
from test_docs import FENCE, PAGES, ROOT

#: Few steps of a small network.
SMALL = (
    "--backbone=test_resnet",
    "--weights=none",
    "--resize=64",
    "--crop=64",
    "--embedding-size=16",
    "--gsp.prototypes=4",
    "--batch-size=8",
    "--images-per-class=2",
    "--optimizer.lr=1e-3",
    "--stop.max-steps=4",
    "--stop.validate-every=2",
    "--hardware.accelerator=cpu",
    "--hardware.workers=0",
)
#: Commands with these need CUB, a cluster or the Hub: they only parse.
ELSEWHERE = re.compile(r"\b(cub|CUB_200_2011|bench|hf://)|--ray", re.IGNORECASE)
#: Pages whose commands run, in this order, in a folder of photos.
RUN = ("README.md", "docs/training.md", "docs/ccp.md", "docs/search.md", "docs/export.md")


def blocks(page: Path, *languages: str) -> list[tuple[str, str]]:
    """Language and text of the fenced blocks of a page, in order."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [(language, text) for language, text in found if language in languages]


def lines(text: str) -> list[str]:
    """The lines of a block; one that ends in a backslash goes on."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def commands(page: Path) -> list[str]:
    """The lines of a page that call ``sumpool``."""
    texts = [text for _, text in blocks(page, "sh", "bash", "console")]
    return [line for text in texts for line in lines(text) if line.startswith("sumpool ")]


def arguments(line: str) -> list[str]:
    return shlex.split(line, comments=True)[1:]


@pytest.mark.process
def test_every_command_on_the_pages_parses() -> None:
    parser, wrong = build_parser(), []
    for page in PAGES:
        for line in commands(page):
            try:
                parser.parse_args(normalize_arguments(arguments(line), flat_switches()))
            except Exception as error:
                wrong.append(f"{page.relative_to(ROOT)}: {line}: {error}")
    assert wrong == []


def test_commands_are_found_whole() -> None:
    assert lines("a \\\n    b  # c\n\nd\n") == ["a      b  # c", "d"]
    assert arguments("sumpool train --data 'my photos'  # a folder") == [
        "train",
        "--data",
        "my photos",
    ]
    assert len(commands(ROOT / "README.md")) >= 5


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages speak of: photos in ten classes, and a run of them."""
    root = tmp_path_factory.mktemp("pages")
    random = np.random.default_rng(0)
    for folder in ("photos", "other-photos", "more-photos"):
        for number in range(10):
            color = random.uniform(40, 215, 3)
            for image in range(4):
                pixels = np.clip(color + random.normal(0, 25, (64, 72, 3)), 0, 255)
                path = root / folder / f"class {number}" / f"{image}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.astype(np.uint8)).save(path)
    for name in ("photo.jpg", "one.jpg", "two.jpg"):
        Image.effect_noise((400, 300), 60).convert("RGB").save(root / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert main(["train", "--data", "photos/", "--out", "runs/photos", *SMALL]) == 0
    return root


@pytest.mark.process
@pytest.mark.parametrize("name", RUN)
def test_the_commands_of_a_page_run(
    name: str, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, folder = ROOT / name, tmp_path / "work"
    shutil.copytree(photos, folder)
    if name in ("README.md", "docs/training.md"):  # the page makes it
        shutil.rmtree(folder / "runs")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))  # where maps of a frozen backbone are stored
    _without_the_hub(monkeypatch)
    for language, text in blocks(page, "sh", "py"):
        if language == "py":
            _script(text)
            continue
        for line in lines(text):
            if line.startswith("curl "):
                with served(folder / "photos.index", "--device=cpu") as server:
                    asked = line.replace("http://127.0.0.1:8000", server.address)
                    subprocess.run([*shlex.split(asked), "--fail", "--silent"], check=True)
            elif line.startswith("sumpool ") and not ELSEWHERE.search(line):
                _command(arguments(line), folder)


def _command(typed: list[str], folder: Path) -> None:
    verb = typed[0]
    if verb == "serve":
        with served(folder / typed[1], "--device=cpu") as server:
            assert server.stop() == 0
        return
    sum_pooling = {"gsp", "papers"} & set(typed)
    small = [it for it in SMALL if sum_pooling or not it.startswith("--gsp.")]
    assert main([*typed, *(small if verb == "train" else ())]) == 0, typed


def _script(text: str) -> None:
    scope: dict[str, Any] = {"__name__": "__example__"}
    if "127.0.0.1:8000" not in text:
        exec(compile(text, "<example>", "exec"), scope)
        return
    with served(Path("photos.index"), "--device=cpu") as server:
        text = text.replace("http://127.0.0.1:8000", server.address)
        exec(compile(text, "<example>", "exec"), scope)


def _without_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes to the Hub stays in the folder that was saved before."""
    saved: list[str] = []
    load = sumpool.Embedder.from_pretrained

    def push(self: Any, repository: str, **options: Any) -> None:
        saved.append(repository)

    def pull(source: Any, *rest: Any) -> Any:
        if str(source).startswith("hf://"):
            assert str(source).removeprefix("hf://") in saved
            source = "photos-model"
        return load(source, *rest)

    monkeypatch.setattr(sumpool.Embedder, "push_to_hub", push)
    monkeypatch.setattr(sumpool.Embedder, "from_pretrained", staticmethod(pull))
