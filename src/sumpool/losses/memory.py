"""Cross-batch memory: pairs of the batch with the embeddings of earlier batches."""

from __future__ import annotations

from typing import Any

import torch
from pytorch_metric_learning.losses import CrossBatchMemory, LiftedStructureLoss
from pytorch_metric_learning.utils.loss_and_miner_utils import get_all_pairs_indices
from torch import Tensor, nn


class MemoryLoss(CrossBatchMemory):  # type: ignore[misc]
    """A pair loss within the batch and between the batch and a memory of embeddings [xbm].

    For the first ``start_step`` steps this is the pair loss alone and nothing is stored, since
    embeddings still change fast. After that, every batch enters the memory without gradient,
    replacing the oldest embeddings once the memory is full, and the loss is

        batch_weight · L(batch, batch) + memory_weight · L(batch, memory),

    where the memory includes the batch itself and no image is compared with itself. Evaluation mode
    counts no steps and stores nothing. The memory, the queue position and the step are part of the
    ``state_dict``, as tensors.

    Args:
        loss: A pair loss of pytorch-metric-learning.
        embedding_size: Length D of the embeddings.
        memory_size: Capacity of the memory, in embeddings.
        start_step: Number of steps before the memory is used.
        batch_weight: Weight of the pairs within the batch, once the memory is used.
        memory_weight: Weight of the pairs of batch and memory.
    """

    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        memory_size: int,
        *,
        start_step: int = 1000,
        batch_weight: float = 1.0,
        memory_weight: float = 1.0,
    ) -> None:
        if isinstance(loss, LiftedStructureLoss):
            raise ValueError("loss must compare pairs one by one, unlike lifted structure")
        super().__init__(loss, embedding_size, memory_size)
        self.start_step = start_step
        self.batch_weight = batch_weight
        self.memory_weight = memory_weight
        self.steps = 0

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of a batch; ``indices_tuple``, from a miner, selects its own pairs."""
        if ref_emb is not None or ref_labels is not None:
            raise ValueError("ref_emb must be None: a loss with a memory has its own references")
        if len(embeddings) > self.memory_size:
            raise ValueError(
                f"embeddings must have at most {self.memory_size} rows, as many as the memory, "
                f"got {len(embeddings)}"
            )
        in_batch: Tensor = self.loss(embeddings, labels, indices_tuple)
        started = self.steps >= self.start_step
        self.steps += self.training
        if not started:
            return in_batch
        with_memory = (
            super().forward(embeddings, labels)
            if self.training
            else self._memory_loss(embeddings, labels)
        )
        return self.batch_weight * in_batch + self.memory_weight * with_memory

    def create_indices_tuple(
        self,
        embeddings: Tensor,
        labels: Tensor,
        E_mem: Tensor,
        L_mem: Tensor,
        input_indices_tuple: Any,
        do_remove_self_comparisons: bool,
    ) -> tuple[Tensor, ...]:
        """Return all pairs of batch and memory except those of an image with itself.

        pytorch-metric-learning's own method keeps these if the batch is a single image.
        """
        anchors, positives, others, negatives = get_all_pairs_indices(labels, L_mem)
        apart = self.curr_batch_idx[anchors] != positives
        return anchors[apart], positives[apart], others, negatives

    def _memory_loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        stored = self.memory_size if self.has_been_filled else self.queue_idx
        memory = self.embedding_memory[:stored].to(embeddings)
        known = self.label_memory[:stored].to(labels)
        pairs = get_all_pairs_indices(labels, known)
        loss: Tensor = self.loss(embeddings, labels, pairs, memory, known)
        return loss

    def get_extra_state(self) -> Tensor:
        """Return the step, the queue position and whether the memory has been filled."""
        return torch.tensor([self.steps, self.queue_idx, int(self.has_been_filled)])

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the state returned by :meth:`get_extra_state`."""
        self.steps, self.queue_idx, filled = state.tolist()
        self.has_been_filled = bool(filled)
