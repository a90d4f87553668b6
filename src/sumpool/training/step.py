"""The mathematics of a step: the forward pass and the loss of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from sumpool.losses import Mixture
from sumpool.training.options import HardwareConfig


class TrainPass(nn.Module):
    """The forward pass of training: images to embeddings and, if requested, attributes.

    It takes and returns tensors only, so that it can be compiled and recorded.

    Args:
        model: The embedder.
        attributes: Whether the loss needs pseudo-attributes.
        channels_last: Whether the network gets images as NHWC.
        raw: Whether the loss takes embeddings before normalization.
    """

    def __init__(
        self, model: nn.Module, attributes: bool, channels_last: bool = False, raw: bool = False
    ) -> None:
        super().__init__()
        self.options = {"normalize": False} if raw else {}
        self.model = model
        self.attributes = attributes
        self.layout = torch.channels_last if channels_last else torch.contiguous_format

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return embeddings (b, D) and, if requested, attributes (b, m)."""
        if images.ndim == 4:  # a frozen network may give sequences instead
            images = images.contiguous(memory_format=self.layout)
        if not self.attributes:
            return (self.model(images, **self.options),)
        pooled = self.model(images, details=True, **self.options)
        return pooled.embedding, pooled.attributes


def compile_pass(train_pass: TrainPass, hardware: HardwareConfig) -> nn.Module:
    """Compile ``train_pass`` if ``hardware`` says so: whole, or only its backbone if recorded."""
    if not hardware.compile:
        return train_pass
    if not (hardware.cuda_step or hardware.cuda_graph):
        return torch.compile(train_pass)  # type: ignore[return-value]
    # Poolings differ between runs, the backbone does not: it is compiled once per process.
    train_pass.model.compile_backbone()  # type: ignore[operator]
    return train_pass


def loss_terms(
    criterion: nn.Module, embeddings: Tensor, labels: Tensor, attributes: Tensor | None
) -> dict[str, Tensor]:
    """Return the loss under the key "loss" and, for a mixture, its parts."""
    embeddings = embeddings.float()
    if isinstance(criterion, Mixture):
        if attributes is None:
            raise ValueError("the zero-shot loss needs attributes, and the pooling gave none")
        parts: dict[str, Tensor] = criterion.components(embeddings, labels, attributes.float())
        return parts
    return {"loss": criterion(embeddings, labels)}


def with_centers(
    terms: dict[str, Tensor], criterion: nn.Module, regularizer: nn.Module | None, weight: float
) -> dict[str, Tensor]:
    """Add weight × the regularizer of the criterion's centers to ``terms``, if there is one."""
    if regularizer is None:
        return terms
    centers: Tensor = criterion.centers()  # type: ignore[operator]
    value: Tensor = regularizer(centers)
    base = terms.get("base_loss", terms["loss"])
    total = terms["loss"] + weight * value
    return {**terms, "loss": total, "base_loss": base, "center_loss": value}


def gather(fabric: Fabric, values: Tensor, *, gradients: bool) -> Tensor:
    """Gather the rows of all processes in the order of their ranks, (W · b, ...).

    With gradients, each process computes the loss of the whole batch. Its gradient with respect to
    a row is summed over the processes in the backward pass, and averaged over them by the network's
    wrapper: together this is the gradient of one process with the whole batch.
    """
    if fabric.world_size == 1:
        return values
    gathered = fabric.all_gather(values, sync_grads=gradients)
    assert isinstance(gathered, Tensor)
    return gathered.flatten(0, 1)


def average_gradients(fabric: Fabric, module: nn.Module) -> None:
    """Average the gradients of ``module``, which every process has computed from the whole batch.

    They agree up to rounding; the average prevents parameters from drifting apart.
    """
    if fabric.world_size == 1:
        return
    for parameter in module.parameters():
        if parameter.grad is not None:
            mean = fabric.all_reduce(parameter.grad, reduce_op="mean")
            assert isinstance(mean, Tensor)
            parameter.grad.copy_(mean)


def record(train_pass: TrainPass, images: Tensor, fabric: Fabric) -> nn.Module:
    """Record the forward and backward pass of ``train_pass`` as CUDA graphs.

    Buffers, such as running statistics, are restored after the recording.

    Args:
        train_pass: The pass, on the device, in training mode, with initialized prototypes.
        images: A batch with the shape of all later ones.
        fabric: Sets the precision.
    """
    before = {name: buffer.clone() for name, buffer in train_pass.named_buffers()}
    # Casts of weights must be part of the recording, not cached from before it.
    with fabric.autocast(), _no_cast_cache():
        recorded = torch.cuda.make_graphed_callables(
            train_pass, (images.clone(),), allow_unused_input=True
        )
    for name, buffer in train_pass.named_buffers():
        buffer.copy_(before[name])
    assert isinstance(recorded, nn.Module)
    return recorded


@contextmanager
def _no_cast_cache() -> Iterator[None]:
    before = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(before)
