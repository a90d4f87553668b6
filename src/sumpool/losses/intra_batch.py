"""Intra-batch connections: classification with attention across the batch, for training only."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sumpool.losses.initial import GRAPH, drawing


class IntraBatchLoss(nn.Module):
    r"""Classify each image alone and in the context of its batch [libc].

    The batch is a complete graph: layers of multi-head attention and a perceptron pass messages
    between the unit embeddings :math:`f = v / \lVert v\rVert`,

    .. math:: f \leftarrow LN(f + MHA(f)), \qquad f \leftarrow LN(f + W_2 ReLU(W_1 f)),

    with dropout and 4 D hidden units, followed by a batch normalization without shift and a linear
    classifier without bias. A second linear classifier acts on the encoder's embeddings v, before
    normalization. The loss is the sum of both cross-entropies of logits / T with label smoothing.
    The graph and the classifiers are not part of the trained model.

    Args:
        num_classes: Number of classes C; labels lie in 0..C − 1.
        embedding_size: Length D of the embeddings.
        layers: Number of graph layers.
        heads: Number of attention heads, a divisor of D.
        temperature: Temperature T.
        label_smoothing: Share of each label that is spread uniformly over the classes.
        dropout: Dropout rate of messages, hidden units and attention weights.
        seed: Seed of the initial weights; the global random state is not used.

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

    def proxy_parameters(self) -> list[nn.Parameter]:
        """Return an empty list: the head uses the learning rate of the network."""
        return []

    def connected(self, embeddings: Tensor) -> Tensor:
        """Pass embeddings (b, D) through the graph layers; returns (b, D)."""
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
        """Return the loss of embeddings (b, D), not normalized, with labels (b,)."""
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
            # A single image has no variance; use the running statistics.
            training=self.training and len(embeddings) > 1,
            momentum=neck.momentum or 0.0,
        )
        logits = torch.stack([self.graph_classifier(nodes), self.classifier(embeddings)])
        # Twice the mean over both classifiers is the sum of their two means over the batch.
        return 2 * F.cross_entropy(
            (logits / self.temperature).flatten(0, 1),
            labels.repeat(2),
            label_smoothing=self.label_smoothing,
        )
