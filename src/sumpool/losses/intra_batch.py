"""Intra-batch connections: attention over the images of a batch, a head that training alone has."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.losses.initial import GRAPH, drawing


class IntraBatchLoss(nn.Module):
    r"""Two classifications of the images of a batch, alone and with all others in view [libc].

    The batch is a complete graph: layers of multi-head attention and a perceptron pass messages
    between its unit embeddings :math:`f = v / \lVert v\rVert`,

    .. math:: f \leftarrow LN(f + MHA(f)), \qquad f \leftarrow LN(f + W_2 ReLU(W_1 f)),

    with dropout and 4 D hidden units. A batch normalization without shift and a linear classifier
    without bias follow. The encoder's own embeddings v, as they are before normalization, have a
    linear classifier of their own. The loss is the sum of both cross-entropies of logits / T with
    label smoothing. Only the encoder is kept: nothing here is part of a model.

    Args:
        num_classes: Classes C; labels lie in 0..C − 1.
        embedding_size: Size D of the embeddings.
        layers: Layers of the graph.
        heads: Heads of its attention, which divide D.
        temperature: T.
        label_smoothing: Share of a label that all classes get alike.
        dropout: Share of messages, hidden units and attention weights that are left out.
        seed: Where weights start; the global random state plays no part.

    Example:
        >>> loss = IntraBatchLoss(num_classes=3, embedding_size=8, layers=1, heads=2)
        >>> loss(torch.randn(6, 8), torch.tensor([0, 0, 1, 1, 2, 2])).shape
        torch.Size([])
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        layers: int = 1,
        heads: int = 2,
        temperature: float = 0.2,
        label_smoothing: float = 0.1,
        dropout: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if embedding_size % heads:
            raise ValueError(f"heads must divide the embedding size, {embedding_size}, got {heads}")
        self.temperature = temperature
        self.label_smoothing = label_smoothing
        with drawing(seed, GRAPH):
            self.graph = nn.ModuleList(
                nn.TransformerEncoderLayer(
                    embedding_size, heads, 4 * embedding_size, dropout, batch_first=True
                )
                for _ in range(layers)
            )
            self.neck = nn.BatchNorm1d(embedding_size)
            self.neck.bias.requires_grad_(False)
            self.graph_classifier = nn.Linear(embedding_size, num_classes, bias=False)
            nn.init.normal_(self.graph_classifier.weight, std=0.001)
            self.classifier = nn.Linear(embedding_size, num_classes)

    def connected(self, embeddings: Tensor) -> Tensor:
        """What the graph makes of embeddings (b, D): (b, D), in the same order."""
        nodes = F.normalize(embeddings, dim=-1).unsqueeze(0)  # (1, b, D)
        for layer in self.graph:
            nodes = layer(nodes)
        return nodes.squeeze(0)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Any = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of embeddings (b, D) before normalization, with labels (b,)."""
        if indices_tuple is not None or ref_emb is not None or ref_labels is not None:
            raise ValueError(
                "indices_tuple, ref_emb and ref_labels must be None: all are connected"
            )
        neck = self.neck
        nodes = F.batch_norm(
            self.connected(embeddings),
            neck.running_mean,
            neck.running_var,
            neck.weight,
            neck.bias,
            # A single image has no variance: it is normalized by that of earlier batches.
            training=self.training and len(embeddings) > 1,
            momentum=neck.momentum or 0.0,
        )
        logits = torch.stack([self.graph_classifier(nodes), self.classifier(embeddings)])
        # The mean over both, twice: the sum of two means over the batch.
        return 2 * F.cross_entropy(
            (logits / self.temperature).flatten(0, 1),
            labels.repeat(2),
            label_smoothing=self.label_smoothing,
        )
