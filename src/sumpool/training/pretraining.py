"""Pretraining of a backbone for small images by classification."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from sumpool.data import Batch, DataError, ImageDataset, Preprocessing, detect_format, open_dataset
from sumpool.models import build_backbone
from sumpool.models.weights import DIGEST, tensors_digest
from sumpool.system.documents import load_json
from sumpool.system.files import write_atomic
from sumpool.system.modes import evaluating
from sumpool.training.config import ConfigError
from sumpool.training.cuda_graph_step import CudaGraphStep, Step
from sumpool.training.errors import RunError
from sumpool.training.optimization import set_rate
from sumpool.training.pretrain_config import PretrainConfig
from sumpool.training.run_folder import RunFolder, machine, versions, write_json
from sumpool.training.values.limits import PRETRAINING, check_limits

#: Files with the weights of the backbone, and with facts about them.
WEIGHTS, FACTS = "backbone.safetensors", "pretraining.json"
#: Data sets of small images of one size, with a test part.
FORMATS = ("cifar10", "cifar100", "mnist", "fashion-mnist")


class Classifier(nn.Module):
    """A backbone from images to maps (B, C, h, w), average pooling and a linear classifier."""

    def __init__(self, backbone: nn.Module, channels: int, classes: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(channels, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (B, classes)."""
        logits: Tensor = self.fc(self.backbone(images).float().mean((2, 3)))
        return logits


def pretrain(config: PretrainConfig, out: Path, *, progress: bool = True) -> Path:
    """Train a backbone by classification, and write its weights to ``out``.

    Training images are shifted by up to an eighth of their side and half of them mirrored [resnet,
    sec. 4.2]. The optimizer is SGD with Nesterov momentum; its rate rises over the first twentieth
    of the steps and falls along a cosine. A finished pretraining of the same configuration is not
    repeated; an interrupted one resumes after its last complete epoch.

    Args:
        config: The options.
        out: Folder of the weights, facts about them (accuracy, versions) and the checkpoint.
        progress: Whether to show a progress bar.

    Returns:
        The weights file, for ``weights`` of :class:`sumpool.models.EmbedderConfig`.

    Raises:
        RunError: If the folder holds a pretraining of another configuration or other weights,
            another process pretrains in it, or the loss is not finite.
        ConfigError: If the configuration cannot be used.
        DataError: If the data cannot be used.
    """
    options = dataclasses.asdict(config)
    check_limits(options, PRETRAINING)
    facts = _read(out / FACTS)
    if facts is not None and facts["identity"] != _identity(options):
        raise RunError(f"{out} holds a pretraining of another configuration: choose another --out")
    if facts is not None and facts["finished"] and (out / WEIGHTS).is_file():
        return out / WEIGHTS
    if facts is None and (out / WEIGHTS).exists():
        raise RunError(f"{out / WEIGHTS} is not of a pretraining: choose another --out")
    device = torch.device(_device(config.accelerator))
    train, test = _open_parts(config)
    torch.manual_seed(config.seed)
    try:
        backbone = build_backbone(config.backbone)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    model = Classifier(backbone.network, backbone.layout.channels, len(train.class_names))
    # Convolutions are faster in this memory format.
    model = model.to(memory_format=torch.channels_last).to(device)
    images, labels = _pixels(train, device), train.labels.to(device)
    run = _Pretrainer(config, model, backbone.preprocessing, images, labels)
    # Only now, so that a run that cannot start does not occupy a folder.
    folder = RunFolder(out)
    with folder.lock():
        write_json(out / FACTS, {"config": options, "finished": False})
        checkpoints = folder.checkpoints
        first = run.load(checkpoints.load())
        with tqdm(
            total=config.epochs,
            initial=first,
            desc="pretraining",
            unit="epoch",
            disable=not progress,
        ) as bar:
            for epoch in range(first, config.epochs):
                loss = run.epoch(epoch)
                bar.update()
                bar.set_postfix_str(f"loss {loss:.3f}")
                checkpoints.save(epoch + 1, run.state(epoch + 1))
        accuracy = classification_accuracy(model, test, backbone.preprocessing)
        state = {name: it.cpu().contiguous() for name, it in model.backbone.state_dict().items()}
        write_atomic(out / WEIGHTS, save(state, {DIGEST: tensors_digest(state)}))
        done = {
            "config": options,
            "finished": True,
            "test_accuracy": accuracy,
            "train_images": len(train),
            "test_images": len(test),
            "versions": versions(),
            "machine": machine(),
            "device": device.type,
        }
        write_json(out / FACTS, done)
    return out / WEIGHTS


@torch.no_grad()
def classification_accuracy(
    model: nn.Module, dataset: ImageDataset, view: Preprocessing, batch_size: int = 500
) -> float:
    """Return the share of images of ``dataset`` that ``model`` classifies correctly."""
    device = next(model.parameters()).device
    pixels, right = _pixels(dataset, device), 0
    with evaluating(model):
        for start in range(0, len(dataset), batch_size):
            part = slice(start, start + batch_size)
            guess = model(view.normalize(pixels[part])).argmax(1).cpu()
            right += int((guess == dataset.labels[part]).sum())
    return right / len(dataset)


def shifted(images: Tensor, pad: int, shifts: Tensor, flips: Tensor) -> Tensor:
    """Shift and mirror padded images, each independently.

    Args:
        images: Images with a border of ``pad`` on each side, (b, c, h + 2p, w + 2p).
        pad: The border p.
        shifts: Rows and columns cut off at the top and left, 0..2p, (b, 2).
        flips: Which images are mirrored, (b,) boolean.

    Returns:
        Images (b, c, h, w).

    Example:
        >>> image = F.pad(torch.tensor([[[[1.0, 2.0]]]]), (1, 1, 1, 1))
        >>> shifted(image, 1, torch.tensor([[1, 0]]), torch.tensor([True]))
        tensor([[[[1., 0.]]]])
    """
    height, width = images.shape[-2] - 2 * pad, images.shape[-1] - 2 * pad
    rows = shifts[:, 0, None] + torch.arange(height, device=images.device)  # (b, h)
    columns = torch.arange(width, device=images.device).expand(len(images), -1)
    columns = torch.where(flips[:, None], width - 1 - columns, columns) + shifts[:, 1, None]
    which = torch.arange(len(images), device=images.device)[:, None, None]
    return images[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class _Pretrainer:
    def __init__(
        self,
        config: PretrainConfig,
        model: Classifier,
        view: Preprocessing,
        images: Tensor,
        labels: Tensor,
    ) -> None:
        self.config, self.model, self.view = config, model, view
        self.labels = labels
        self.pad = images.shape[-1] // 8
        self.images = F.pad(images, (self.pad,) * 4)
        self.steps = len(labels) // config.batch_size
        if not self.steps:
            raise ConfigError(
                f"batch_size {config.batch_size} must be at most the {len(labels)} training images"
            )
        device = images.device
        on_cuda = device.type == "cuda"
        self.rate: Any = torch.tensor(config.lr, device=device) if on_cuda else config.lr
        self.optimizer = torch.optim.SGD(
            model.parameters(),
            lr=self.rate,
            momentum=0.9,
            nesterov=True,
            weight_decay=config.weight_decay,
            fused=on_cuda,
        )
        self.do: Step = CudaGraphStep(self._step) if on_cuda else self._step

    def epoch(self, epoch: int) -> float:
        """Train for one pass over the images; return the mean loss."""
        self.model.train()
        total: Any = 0.0
        for step, batch in enumerate(self._batches(epoch)):
            self._set_rate((epoch + step / self.steps) / self.config.epochs)
            total = total + self.do(batch)["loss"].detach()
        mean = float(total) / self.steps
        if not math.isfinite(mean):
            raise RunError(f"the loss is {mean} in epoch {epoch + 1}: lower lr")
        return mean

    def state(self, epochs: int) -> dict[str, Any]:
        return {
            "epochs": epochs,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any] | None) -> int:
        """Resume from ``state``; return the number of finished epochs."""
        if state is None:
            return 0
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate
        return int(state["epochs"])

    def _batches(self, epoch: int) -> Iterator[Batch]:
        # The randomness of an epoch depends on the seed and its number alone.
        generator = torch.Generator().manual_seed((self.config.seed * 100_003 + epoch) % 2**63)
        size, device = self.config.batch_size, self.images.device
        order = torch.randperm(len(self.labels), generator=generator)
        shifts = torch.randint(2 * self.pad + 1, (len(order), 2), generator=generator).to(device)
        flips = (torch.rand(len(order), generator=generator) < 0.5).to(device)
        flips = flips & self.view.flip
        placed = order.to(device)
        for start in range(0, self.steps * size, size):
            part = slice(start, start + size)
            images = shifted(self.images[placed[part]], self.pad, shifts[part], flips[part])
            yield Batch(self.view.normalize(images), self.labels[placed[part]], order[part])

    def _step(self, batch: Batch) -> dict[str, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        on_cuda = self.images.device.type == "cuda"
        with torch.autocast(self.images.device.type, torch.bfloat16, enabled=on_cuda):
            logits = self.model(batch.images.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits.float(), batch.labels)
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.detach()}

    def _set_rate(self, share: float) -> None:
        rate = self.config.lr * min(share / 0.05, 0.5 * (1 + math.cos(math.pi * share)))
        for group in self.optimizer.param_groups:
            set_rate(group, rate)


def _open_parts(config: PretrainConfig) -> tuple[ImageDataset, ImageDataset]:
    """Open the training and the test images."""
    if config.format not in ("auto", *FORMATS):
        raise ConfigError(
            f"format must be auto or one of {', '.join(FORMATS)}, got {config.format!r}"
        )
    name = detect_format(config.data) if config.format == "auto" else config.format
    if name not in FORMATS:
        raise DataError(
            f"{config.data} is a data set of the format {name}, but pretraining needs one of "
            f"{', '.join(FORMATS)}"
        )
    train, test = (
        open_dataset(config.data, name, split, check_counts=config.check_counts)
        for split in ("train", "test")
    )
    return train, test


def _pixels(dataset: ImageDataset, device: torch.device) -> Tensor:
    """Return all images, which have one size, as (N, 3, h, w) uint8."""
    pixels = np.stack([np.asarray(dataset.load(index)) for index in range(len(dataset))])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(device)


def _device(accelerator: str) -> str:
    if accelerator not in ("auto", "cpu", "cuda"):
        raise ConfigError(f"accelerator must be auto, cpu or cuda, got {accelerator!r}")
    if accelerator == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if accelerator == "cuda" and not torch.cuda.is_available():
        raise ConfigError("accelerator is cuda, but there is no CUDA device")
    return accelerator


def _identity(options: dict[str, Any]) -> dict[str, Any]:
    """Return what determines the weights: a published data set is the same in any folder."""
    published = options["format"] != "auto" and options["check_counts"]
    return {**options, "data": None if published else Path(options["data"]).resolve()}


def _read(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        facts = load_json(path)
        return {"identity": _identity(facts["config"]), "finished": facts["finished"]}
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(
            f"{path} is damaged: choose another --out, or remove its folder to start over"
        ) from error
