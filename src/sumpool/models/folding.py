"""Folding of frozen batch normalization into the preceding convolution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from timm.layers.padding import pad_same
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

#: A convolution, and the batch normalization that is the only user of its output.
Pair = tuple[nn.Conv2d, nn.BatchNorm2d]


def fold_batch_norm(network: nn.Module, images: Tensor) -> int:
    r"""Fold batch normalization layers of ``network`` into the convolutions before them, in place.

    Normalization by fixed statistics, s · (w ∗ x − μ) + β with s = γ/√(σ² + ε), is a convolution
    with the weight s · w and the bias β − s · μ. Both are recomputed in every forward pass, so that
    w, γ and β are trained with the same gradients as before up to rounding, while activations are
    read and written fewer times. On CUDA in NHWC layout, a 1 × 1 convolution becomes a matrix
    product, whose gradients are faster.

    Parameters, their names and the state dict do not change. A layer is not folded if its output is
    used by anything but one normalization, if either is called more than once, or if its type is
    not supported.

    Args:
        network: Its batch normalization must stay in evaluation mode from now on.
        images: Example input, passed through the network once, without gradients.

    Returns:
        The number of folded batch normalization layers.

    Example:
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
        >>> images = torch.randn(2, 3, 9, 9)
        >>> before = network(images)
        >>> fold_batch_norm(network, images)
        1
        >>> torch.allclose(network(images), before, atol=1e-6)
        True
    """
    pairs = _find_pairs(network, images)
    for convolution, normalization in pairs:
        # Classes and a plain attribute rather than functions bound to these layers, so that
        # networks of the same structure share compiled code.
        convolution.__class__ = _FOLDED[type(convolution)]  # type: ignore[assignment]
        object.__setattr__(convolution, "normalization", normalization)
        normalization.__class__ = _FOLDED[type(normalization)]  # type: ignore[assignment]
    return len(pairs)


def _convolve(convolution: nn.Conv2d, normalization: nn.BatchNorm2d, x: Tensor) -> Tensor:
    mean, variance = normalization.running_mean, normalization.running_var
    assert mean is not None
    assert variance is not None
    scale = torch.rsqrt(variance + normalization.eps)
    if normalization.affine:
        scale = normalization.weight * scale
    shift = -mean if convolution.bias is None else convolution.bias - mean
    bias = scale * shift
    if normalization.affine:
        bias = bias + normalization.bias
    weight = convolution.weight * scale.view(-1, 1, 1, 1)
    if _is_product(convolution, x):
        return F.linear(x.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
    if isinstance(convolution, Conv2dSame):
        strides, dilation = list(convolution.stride), list(convolution.dilation)
        x = pad_same(x, list(weight.shape[-2:]), strides, dilation)
    out: Tensor = convolution._conv_forward(x, weight, bias)
    return out


class _Convolution(nn.Conv2d):
    normalization: nn.BatchNorm2d

    def forward(self, x: Tensor) -> Tensor:
        return _convolve(self, self.normalization, x)


class _SameConvolution(Conv2dSame):
    normalization: nn.BatchNorm2d

    def forward(self, x: Tensor) -> Tensor:
        return _convolve(self, self.normalization, x)


class _Nothing(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return x


class _Activation(BatchNormAct2d):
    def forward(self, x: Tensor) -> Tensor:
        activated: Tensor = self.act(self.drop(x))
        return activated


#: Supported types of layers, without their subclasses, and the types that replace them.
_FOLDED: Mapping[type[nn.Module], type[nn.Module]] = {
    nn.Conv2d: _Convolution,
    Conv2dSame: _SameConvolution,
    nn.BatchNorm2d: _Nothing,
    BatchNormAct2d: _Activation,
}


def _is_product(convolution: nn.Conv2d, x: Tensor) -> bool:
    if not x.is_cuda or not x.is_contiguous(memory_format=torch.channels_last):
        return False
    once = all(v == 1 for v in (*convolution.kernel_size, *convolution.stride, convolution.groups))
    return once and convolution.padding in ((0, 0), "same", "valid")


def _find_pairs(network: nn.Module, images: Tensor) -> list[Pair]:
    known = [m for m in network.modules() if type(m) in _FOLDED]
    convolutions = [m for m in known if isinstance(m, nn.Conv2d)]
    frozen = [m for m in known if isinstance(m, nn.BatchNorm2d) and not m.training]
    normalizations = [m for m in frozen if m.running_var is not None]
    with torch.no_grad(), _Uses(convolutions, normalizations) as uses:
        network(images)
    return uses.pairs()


class _Uses(TorchFunctionMode):
    """Records which layer computes a tensor, and where the tensor is used."""

    def __init__(
        self, convolutions: Sequence[nn.Module], normalizations: Sequence[nn.Module]
    ) -> None:
        super().__init__()
        self._convolutions, self._normalizations = convolutions, normalizations
        self._hooks: list[Any] = []
        # Outputs are kept alive, so that their ids are not reused.
        self._outputs: dict[int, tuple[Tensor, nn.Module]] = {}
        self._elsewhere: set[int] = set()
        self._calls: list[nn.Module] = []
        self._entered: list[tuple[int, nn.Module]] = []
        self._inside = False

    def __enter__(self) -> _Uses:
        for layer in self._convolutions:
            self._hooks.append(layer.register_forward_hook(self._made))
        for layer in self._normalizations:
            self._hooks.append(layer.register_forward_pre_hook(self._enters))
            self._hooks.append(layer.register_forward_hook(self._leaves))
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        reads = getattr(function, "__name__", "") == "__get__"  # an attribute, such as its shape
        if not self._inside and not reads:
            self._note(args)
            self._note((kwargs or {}).values())
        return function(*args, **(kwargs or {}))

    def pairs(self) -> list[Pair]:
        """Return the pairs whose normalization can be folded."""
        pairs = []
        for identity, normalization in self._entered:
            _, convolution = self._outputs[identity]
            goes_to = sum(it == identity for it, _ in self._entered)
            calls = self._calls.count(convolution), self._calls.count(normalization)
            if goes_to == 1 and calls == (1, 1) and identity not in self._elsewhere:
                assert isinstance(convolution, nn.Conv2d)
                assert isinstance(normalization, nn.BatchNorm2d)
                pairs.append((convolution, normalization))
        return pairs

    def _note(self, values: Iterable[Any]) -> None:
        for value in values:
            if isinstance(value, Tensor) and id(value) in self._outputs:
                self._elsewhere.add(id(value))
            elif isinstance(value, (list, tuple)):
                self._note(value)

    def _made(self, layer: nn.Module, args: Any, output: Tensor) -> None:
        self._outputs[id(output)] = output, layer
        self._calls.append(layer)

    def _enters(self, layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        if id(args[0]) in self._outputs:
            self._entered.append((id(args[0]), layer))
        self._calls.append(layer)
        self._inside = True

    def _leaves(self, layer: nn.Module, args: Any, output: Tensor) -> None:
        self._inside = False
