"""The mathematics of a step: the pass through the network and the loss of the whole batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from sumpool.losses import Mixture
from sumpool.training.options import HardwareConfig


class TrainPass(nn.Module):
    """The forward pass of training: images to embeddings and, where asked for, attributes.

    It takes and returns tensors only, so that it can be compiled and recorded.

    Args:
        model: The embedder.
        attributes: Whether the loss needs pseudo-attributes.
        channels_last: Whether images go into the network as NHWC.
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
        """Embeddings (b, D), and attributes (b, m) where they are asked for."""
        if images.ndim == 4:  # a frozen network may give sequences in their place
            images = images.contiguous(memory_format=self.layout)
        if not self.attributes:
            return (self.model(images, **self.options),)
        pooled = self.model(images, details=True, **self.options)
        return pooled.embedding, pooled.attributes


def compile_pass(train_pass: TrainPass, hardware: HardwareConfig) -> nn.Module:
    """``train_pass`` as ``hardware`` wants it compiled: whole, or only its backbone if recorded."""
    if not hardware.compile:
        return train_pass
    if not (hardware.cuda_step or hardware.cuda_graph):
        return torch.compile(train_pass)  # type: ignore[return-value]
    # Poolings differ from run to run, the backbone does not: compiled once per process.
    train_pass.model.compile_backbone()  # type: ignore[operator]
    return train_pass


def loss_terms(
    criterion: nn.Module, embeddings: Tensor, labels: Tensor, attributes: Tensor | None
) -> dict[str, Tensor]:
    """The loss under the name "loss" and, for a mixture, its parts beside it."""
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
    """``terms`` with weight × the regularizer of the criterion's centers, if there is one."""
    if regularizer is None:
        return terms
    centers: Tensor = criterion.centers()  # type: ignore[operator]
    value: Tensor = regularizer(centers)
    base = terms.get("base_loss", terms["loss"])
    total = terms["loss"] + weight * value
    return {**terms, "loss": total, "base_loss": base, "center_loss": value}


def gather(fabric: Fabric, values: Tensor, *, gradients: bool) -> Tensor:
    """The rows of all processes, those of the first process first; (W · b, ...).

    With gradients, each process computes the loss of the whole batch. Its gradient with respect to
    a row is summed over the processes on the way back, and averaged over them by the wrapper of the
    network: together that is the gradient of one process with the whole batch.
    """
    if fabric.world_size == 1:
        return values
    gathered = fabric.all_gather(values, sync_grads=gradients)
    assert isinstance(gathered, Tensor)
    return gathered.flatten(0, 1)


def average_gradients(fabric: Fabric, module: nn.Module) -> None:
    """Average the gradients of ``module``, which every process has computed from the whole batch.

    They agree up to the rounding of each device; the average keeps parameters from drifting apart.
    """
    if fabric.world_size == 1:
        return
    for parameter in module.parameters():
        if parameter.grad is not None:
            mean = fabric.all_reduce(parameter.grad, reduce_op="mean")
            assert isinstance(mean, Tensor)
            parameter.grad.copy_(mean)


def record(train_pass: TrainPass, images: Tensor, fabric: Fabric) -> nn.Module:
    """``train_pass`` with its forward and backward pass recorded as CUDA graphs.

    Buffers, such as running statistics, are left as they were before the recording.

    Args:
        train_pass: On the device, in training mode, its prototypes initialized.
        images: A batch with the shape of all that follow.
        fabric: Gives the precision.
    """
    before = {name: buffer.clone() for name, buffer in train_pass.named_buffers()}
    # Casts of weights must be part of the recording, not kept from before it.
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
