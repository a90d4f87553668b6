"""The optimizer with one group per kind of parameter, its rates, the average of the weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sumpool.losses import Mixture
from sumpool.training.options import OptimizerConfig

#: The optimizers by name; all have Adam's moments.
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": torch.optim.RAdam,
}
#: How parameters of GSP end that ``gsp.lr_multiplier`` is for.
SELECTION = (
    *(".prototypes", ".log_eps", ".mix_logit", ".norm_weight"),
    *(".share_map.weight", ".share_map.bias", "pooling.query.weight"),
    *("pooling.key.weight", "pooling.key.bias"),
)


@dataclass(frozen=True)
class Groups:
    """The trainable parameters by what they do.

    Attributes:
        backbone: The pretrained part: spared in the warm-up.
        embedding: The map to the embedding and the pooling.
        prototypes: The prototypes, and what else GSP learns to select by, if they have a rate of
            their own; else they belong to the embedding.
        proxies: Proxies of the loss.
        class_embeddings: Class embeddings of the zero-shot loss.
        rest: What else the loss learns.
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
    """Sort the trainable parameters of ``model`` and ``criterion``, each into one group."""
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
    """The optimizer over ``groups``; learning rates of a resolved ``config``.

    Args:
        groups: The parameters.
        config: Rates and decay; none of them null but ``plateau_patience``.
        zero_shot_lr_multiplier: Factor on the rate of the class embeddings.
        prototype_lr_multiplier: Factor on the rate of the prototypes over that of the map.
        fused: One kernel for all parameters (CUDA); radam has none.
        recorded_on: The device, if steps are to be recorded: learning rates are then numbers on it,
            which a recorded step reads.
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
    """Put the learning rates back on ``device``, after a state was loaded."""
    for group in optimizer.param_groups:
        group["lr"] = _rate(float(group["lr"]), device)


def _rate(value: float, device: torch.device | None) -> float | Tensor:
    return value if device is None else torch.tensor(value, device=device)


def follow_cosine(optimizer: torch.optim.Optimizer, done: float, total: float) -> None:
    """Set the rates when ``done`` of ``total`` steps or seconds are over: from full to zero."""
    scale_rates(optimizer, (1 + math.cos(math.pi * done / total)) / 2)


def follow_schedule(
    optimizer: torch.optim.Optimizer,
    config: OptimizerConfig,
    step: int,
    done: tuple[float, float] | None,
) -> bool:
    """Set the rates of step number ``step``, as ``config`` wants them.

    Args:
        optimizer: The optimizer.
        config: Its options.
        step: The step, from 0.
        done: Steps or seconds that are over, and how many there will be; None if nobody knows.

    Returns:
        Whether the step starts from the best model so far.
    """
    if config.schedule == "cosine" and done is not None:
        follow_cosine(optimizer, *done)
    if step in config.restarts:
        scale_rates(optimizer, config.restart_factor)
    return step in config.restarts


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set all rates to ``factor`` times the first ones."""
    for group in optimizer.param_groups:
        rate = group["initial_lr"] * factor
        if isinstance(group["lr"], Tensor):  # which a recorded step reads
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def build_plateau(
    optimizer: torch.optim.Optimizer, config: OptimizerConfig
) -> torch.optim.lr_scheduler.ReduceLROnPlateau | None:
    """The schedule that lowers all rates when validation stops improving; None without one."""
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

    After update t (1, 2, …) it is d·average + (1 − d)·weights with d = min(decay, (t − 1)/(t + 8)):
    the first update copies the weights, and early ones forget fast. Updates are in place, so that
    they work beside a recorded step. The model gets the average, or with a share s of the start
    (1 − s)·average + s·weights at :meth:`begin` [wise-ft].

    Args:
        model: On its device, where its tensors must stay.
        decay: In [0, 1); 0 keeps the last weights alone.
        start_share: Share in [0, 1) of the weights that training began with.

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
        """Take the current weights as those that training begins with."""
        if self._start:
            torch._foreach_copy_(self._start, self._weights)

    def update(self, count: int) -> None:
        """Add the current weights as update number ``count``; up to 1 starts over."""
        past = max(0, count - 1)
        decay = min(self._decay, past / (past + 9))
        torch._foreach_lerp_(self._average, self._weights, 1 - decay)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the model has the average as its weights."""
        own = [it.clone() for it in self._weights]
        self.apply()
        try:
            yield
        finally:
            torch._foreach_copy_(self._weights, own)

    def apply(self) -> None:
        """Give the model the average, with its share of the start, as its weights."""
        torch._foreach_copy_(self._weights, self._average)
        if self._start:
            torch._foreach_lerp_(self._weights, self._start, self._start_share)

    def state_dict(self) -> dict[str, Tensor]:
        """The average by the names of the model's state, and the start behind ``start.``."""
        start = {f"start.{name}": it for name, it in zip(self._names, self._start, strict=False)}
        return {**dict(zip(self._names, self._average, strict=True)), **start}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore what :meth:`state_dict` returned."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(state[name])


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _without(parameters: list[nn.Parameter], taken: list[nn.Parameter]) -> list[nn.Parameter]:
    ids = {id(parameter) for parameter in taken}
    return [parameter for parameter in parameters if id(parameter) not in ids]
