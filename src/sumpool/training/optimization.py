"""Optimizer with one group per kind of parameter, learning rates, weight averaging."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sumpool.losses import Mixture
from sumpool.training.options import OptimizerConfig

#: Optimizers by name; all have Adam's moments.
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}
#: Name suffixes of the GSP parameters to which ``gsp.lr_multiplier`` applies.
SELECTION = (
    *(".prototypes", ".log_eps", ".mix_logit", ".norm_weight"),
    *(".share_map.weight", ".share_map.bias", "pooling.query.weight"),
    *("pooling.key.weight", "pooling.key.bias"),
)


@dataclass(frozen=True)
class Groups:
    """Trainable parameters by role.

    Attributes:
        backbone: The pretrained part, not trained during warm-up.
        embedding: The map to the embedding and the pooling.
        prototypes: The prototypes and other parameters by which GSP selects, if they have their own
            rate; otherwise they belong to ``embedding``.
        proxies: Proxies of the loss.
        class_embeddings: Class embeddings of the zero-shot loss.
        rest: Other parameters of the loss.
    """

    backbone: list[nn.Parameter]
    embedding: list[nn.Parameter]
    prototypes: list[nn.Parameter]
    proxies: list[nn.Parameter]
    class_embeddings: list[nn.Parameter]
    rest: list[nn.Parameter]


def parameter_groups(
    model: nn.Module, criterion: nn.Module, *, own_prototypes: bool = False
) -> Groups:
    """Assign each trainable parameter of ``model`` and ``criterion`` to one group."""
    backbone = _trainable(model.get_submodule("backbone"))
    proxies: list[nn.Parameter] = list(getattr(criterion, "proxy_parameters", list)())
    zero_shot = _trainable(criterion.zero_shot) if isinstance(criterion, Mixture) else []
    prototypes = [
        parameter
        for name, parameter in model.named_parameters()
        if own_prototypes and name.endswith(SELECTION)
    ]
    embedding = _without(_trainable(model), [*backbone, *prototypes])
    rest = _without(_trainable(criterion), [*proxies, *zero_shot])
    return Groups(backbone, embedding, prototypes, proxies, zero_shot, rest)


def build_optimizer(
    groups: Groups,
    config: OptimizerConfig,
    zero_shot_lr_multiplier: float,
    prototype_lr_multiplier: float = 1.0,
    *,
    fused: bool,
    recorded_on: torch.device | None = None,
) -> torch.optim.Optimizer:
    """Build the optimizer over ``groups`` with the learning rates of a resolved ``config``.

    Args:
        groups: The parameters.
        config: Rates and decay; ``lr`` and ``proxy_lr_multiplier`` must not be null.
        zero_shot_lr_multiplier: Factor on the rate of the class embeddings.
        prototype_lr_multiplier: Rate of the prototypes relative to that of the map.
        fused: Use one kernel for all parameters (CUDA); radam has none.
        recorded_on: The device, if steps are recorded: learning rates are then tensors on it, which
            a recorded step reads.
    """
    if config.lr is None or config.proxy_lr_multiplier is None:
        raise ValueError("config must be resolved: lr and proxy_lr_multiplier are null")
    map_factor = config.embedding_lr_multiplier
    listed = (
        ("backbone", groups.backbone, 1.0),
        ("embedding", groups.embedding, map_factor),
        ("prototypes", groups.prototypes, map_factor * prototype_lr_multiplier),
        ("proxies", groups.proxies, config.proxy_lr_multiplier),
        ("class_embeddings", groups.class_embeddings, zero_shot_lr_multiplier),
        ("rest", groups.rest, 1.0),
    )
    return OPTIMIZERS[config.name](
        [
            {
                "params": parameters,
                "lr": _rate(config.lr * factor, recorded_on),
                "initial_lr": config.lr * factor,
                "name": name,
            }
            for name, parameters, factor in listed
            if parameters
        ],
        betas=(config.beta1, config.beta2),
        weight_decay=config.weight_decay,
        capturable=recorded_on is not None,
        **({} if config.name == "radam" else {"fused": fused}),
    )


def keep_rates_on(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Move the learning rates back to ``device`` after loading a state."""
    for group in optimizer.param_groups:
        group["lr"] = _rate(float(group["lr"]), device)


def _rate(value: float, device: torch.device | None) -> float | Tensor:
    return value if device is None else torch.tensor(value, device=device)


def follow_cosine(optimizer: torch.optim.Optimizer, done: float, total: float) -> None:
    """Set the rates after ``done`` of ``total`` steps or seconds, from full to zero."""
    scale_rates(optimizer, (1 + math.cos(math.pi * done / total)) / 2)


def follow_schedule(
    optimizer: torch.optim.Optimizer,
    config: OptimizerConfig,
    step: int,
    done: tuple[float, float] | None,
) -> bool:
    """Set the rates for step number ``step`` according to ``config``.

    Args:
        optimizer: The optimizer.
        config: Its options.
        step: The step, counted from 0.
        done: Steps or seconds done, and their total; None if the total is unknown.

    Returns:
        Whether the step starts from the best model so far.
    """
    if config.schedule == "cosine" and done is not None:
        follow_cosine(optimizer, *done)
    if step in config.restarts:
        scale_rates(optimizer, config.restart_factor)
    return step in config.restarts


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set all rates to ``factor`` times their initial values."""
    for group in optimizer.param_groups:
        set_rate(group, group["initial_lr"] * factor)


def set_rate(group: dict[str, Any], rate: float) -> None:
    """Set the rate of a parameter group."""
    if isinstance(group["lr"], Tensor):  # a recorded step reads this tensor
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


def build_plateau(
    optimizer: torch.optim.Optimizer, config: OptimizerConfig
) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
    """Build the scheduler that lowers all rates when validation stops improving, if configured."""
    if config.plateau_patience is None:
        return None
    return torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer,
        mode="max",
        factor=config.plateau_factor,
        patience=config.plateau_patience,
        threshold=0.0,
    )


class WeightAverage:
    """An exponential moving average of the parameters and the floating-point buffers of a model.

    Update t (1, 2, …) sets it to d·average + (1 − d)·weights with d = min(decay, (t − 1)/(t + 8)):
    the first update copies the weights, and early ones forget fast. Updates are in place, so that
    they work with a recorded step. The model gets the average or, with a start share s,
    (1 − s)·average + s·weights at :meth:`begin` [wise-ft].

    Args:
        model: The model; its tensors must stay on their device.
        decay: Decay in [0, 1); 0 keeps only the last weights.
        start_share: Share in [0, 1) of the initial weights.

    Example:
        >>> layer = nn.Linear(1, 1, bias=False)
        >>> average = WeightAverage(layer, decay=0.9)
        >>> for step in (1, 2):
        ...     _ = layer.weight.data.fill_(step)
        ...     average.update(step)
        >>> with average.applied():
        ...     print(f"{layer.weight.item():.2f}")
        1.90
        >>> layer.weight.item()
        2.0
    """

    def __init__(self, model: nn.Module, decay: float, start_share: float = 0.0) -> None:
        state = {name: it for name, it in model.state_dict().items() if it.is_floating_point()}
        self._decay, self._names, self._weights = decay, list(state), list(state.values())
        self._average = [it.clone() for it in self._weights]
        self._start_share = start_share
        self._start = [it.clone() for it in self._weights] if start_share else []

    def begin(self) -> None:
        """Use the current weights as the initial weights."""
        if self._start:
            torch._foreach_copy_(self._start, self._weights)

    def update(self, count: int) -> None:
        """Add the current weights as update number ``count``; counts up to 1 start over."""
        past = max(0, count - 1)
        decay = min(self._decay, past / (past + 9))
        torch._foreach_lerp_(self._average, self._weights, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the average as the model's weights inside the ``with``."""
        own = [it.clone() for it in self._weights]
        self.apply()
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, own)

    def apply(self) -> None:
        """Set the model's weights to the average, including the share of the initial weights."""
        torch._foreach_copy_(self._weights, self._average)
        if self._start:
            torch._foreach_lerp_(self._weights, self._start, self._start_share)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average by state name, and the initial weights prefixed with ``start.``."""
        start = {f"start.{name}": it for name, it in zip(self._names, self._start, strict=False)}
        return {**dict(zip(self._names, self._average, strict=True)), **start}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore a state returned by :meth:`state_dict`."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _without(parameters: list[nn.Parameter], taken: list[nn.Parameter]) -> list[nn.Parameter]:
    ids = {id(parameter) for parameter in taken}
    return [parameter for parameter in parameters if id(parameter) not in ids]
