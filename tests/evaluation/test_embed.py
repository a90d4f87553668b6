"""Embedding a feed: the order asked for, modes restored, and the same from several processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from evaluation.number_feed import NumberFeed, Squares
from sumpool.evaluation import embed_images, retrieval_metrics
from sumpool.evaluation.embed import NotFiniteError

HERE = Path(__file__).parent


def test_embeddings_come_in_the_order_asked_for() -> None:
    feed = NumberFeed(10)
    found = embed_images(Squares(), feed, indices=[7, 2, 2, 9], batch_size=3)
    assert found.indices.tolist() == [7, 2, 2, 9]
    assert found.vectors[:, 0].tolist() == [7, 2, 2, 9]
    assert torch.equal(found.labels, feed.dataset.labels[[7, 2, 2, 9]])


@pytest.mark.parametrize("batch_size", [1, 4, 10, 64])
def test_all_images_are_embedded_without_indices(batch_size: int) -> None:
    feed = NumberFeed(10)
    found = embed_images(Squares(), feed, batch_size=batch_size)
    assert found.indices.tolist() == list(range(10))
    assert found.vectors.tolist() == [[i, i**2] for i in range(10)]
    assert torch.equal(found.labels, feed.dataset.labels)


def test_results_are_float32_and_int64_on_the_cpu_without_gradients() -> None:
    found = embed_images(Squares().double(), NumberFeed(4, torch.float64))
    assert found.vectors.dtype == torch.float32
    assert found.labels.dtype == found.indices.dtype == torch.int64
    assert not found.vectors.requires_grad


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_gets_images_in_it(kind: torch.dtype) -> None:
    model = nn.Sequential(Squares(), nn.Linear(2, 2))
    expected = embed_images(model, NumberFeed(4)).vectors
    found = embed_images(model.to(kind), NumberFeed(4)).vectors
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)


def test_the_model_is_in_evaluation_mode_and_gets_its_modes_back() -> None:
    model = nn.Sequential(Squares(), nn.BatchNorm1d(2), nn.Dropout(0.9))
    model.train()
    model[1].eval()  # frozen
    statistics = model[1].running_mean.clone()
    first = embed_images(model, NumberFeed(8), batch_size=8)
    second = embed_images(model, NumberFeed(8), batch_size=3)
    assert torch.allclose(first.vectors, second.vectors)
    assert torch.equal(model[1].running_mean, statistics)
    assert [module.training for module in model] == [True, False, True]
    assert model.training


def test_modes_are_restored_after_a_failure() -> None:
    model = nn.Sequential(Squares(fail_at=5)).train()
    with pytest.raises(RuntimeError, match="image 5 is broken"):
        embed_images(model, NumberFeed(8))
    assert model.training
    assert model[0].training


def test_an_embedding_that_is_not_finite_is_refused_and_its_image_named() -> None:
    class Bad(Squares):
        def forward(self, images: Tensor) -> Tensor:
            vectors = super().forward(images)
            return torch.where(vectors == 5, torch.nan, vectors)

    with pytest.raises(NotFiniteError, match="the embedding of number 5 is not finite"):
        embed_images(Bad(), NumberFeed(8), batch_size=4)


def test_a_progress_bar_counts_images(capsys: pytest.CaptureFixture[str]) -> None:
    embed_images(Squares(), NumberFeed(8), batch_size=3, progress=True)
    assert "8/8" in capsys.readouterr().err


class TupleModel(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return x, x


@pytest.mark.parametrize(
    ("options", "error", "complaint"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({"indices": []}, ValueError, r"indices must be a list .*got shape \(0,\)"),
        ({"indices": [[1]]}, ValueError, r"indices must be a list .*got shape \(1, 1\)"),
        ({"model": TupleModel()}, TypeError, r"model must map 4 images .*got <class 'tuple'>"),
        ({"model": nn.Flatten(0)}, TypeError, r"model must map 4 images .*got \(48,\)"),
    ],
)
def test_unusable_arguments_are_refused(
    options: dict[str, Any], error: type[Exception], complaint: str
) -> None:
    model = options.pop("model", Squares())
    with pytest.raises(error, match=complaint):
        embed_images(model, NumberFeed(4), **options)


class Wrapped(DistributedDataParallel):
    """What a wrapper is to this function: one whose forward pass waits for other processes."""

    def __init__(self, module: nn.Module) -> None:
        nn.Module.__init__(self)
        self.module = module

    def forward(self, images: Tensor) -> Tensor:
        raise AssertionError("the wrapper was called")


def test_a_wrapper_for_training_is_passed_by() -> None:
    found = embed_images(Wrapped(Squares()), NumberFeed(3))
    assert found.vectors[:, 0].tolist() == [0, 1, 2]


def run_processes(program: str, world: int, folder: Path) -> list[str]:
    """What each of ``world`` processes printed; ``program`` finds rank, world and folder there."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(rank), str(world), str(folder), str(HERE.parent)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world)
    ]
    outputs = [process.communicate(timeout=300)[0] for process in running]
    assert [process.returncode for process in running] == [0] * world, "\n".join(outputs)
    return outputs


SHARED = """
import sys
rank, world, folder, tests = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
sys.path.insert(0, tests)
import torch
import torch.distributed as dist
from evaluation.number_feed import NumberFeed, Squares
from sumpool.evaluation import embed_images, retrieval_metrics
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
out = {}
for count in (1, 2, 3, 7, 12):
    feed = NumberFeed(20)
    wanted = [(7 * i) % 20 for i in range(count)]
    out[count] = tuple(embed_images(Squares(), feed, indices=wanted, batch_size=3))
    out[f"seen {count}"] = feed.given
feed = NumberFeed(30)
every = embed_images(Squares(), feed)
out["every"] = tuple(every)
out["metrics"] = retrieval_metrics(every.vectors, every.labels)
torch.save(out, f"{folder}/{rank}.pt")
try:
    embed_images(Squares(fail_at=9), NumberFeed(10))
except RuntimeError as error:
    print(error)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("shared")
    return folder, run_processes(SHARED, 2, folder)


@pytest.mark.process
def test_processes_share_the_images_and_all_get_all(two_processes: tuple[Path, list[str]]) -> None:
    folder, _ = two_processes
    first, second = (torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2))
    for count in (1, 2, 3, 7, 12):
        wanted = [(7 * i) % 20 for i in range(count)]
        single = embed_images(Squares(), NumberFeed(20), indices=wanted, batch_size=3)
        for out in (first, second):
            assert all(torch.equal(a, b) for a, b in zip(out[count], single, strict=True))
        # None twice, and none but those asked for.
        assert first[f"seen {count}"] + second[f"seen {count}"] == wanted
    single = embed_images(Squares(), NumberFeed(30))
    for out in (first, second):
        assert all(torch.equal(a, b) for a, b in zip(out["every"], single, strict=True))
        assert out["metrics"] == retrieval_metrics(single.vectors, single.labels)


@pytest.mark.process
def test_a_failure_in_one_process_reaches_the_others(two_processes: tuple[Path, list[str]]) -> None:
    _, (first, second) = two_processes
    assert "embedding failed in process 1, which says why" in first
    assert "image 9 is broken" in second
