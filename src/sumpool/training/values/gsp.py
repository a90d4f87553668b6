"""Options of generalized sum pooling: accepted values and contradictions."""

from __future__ import annotations

from collections.abc import Mapping

from sumpool.training.config import ConfigError, TrainConfig
from sumpool.training.options import GspConfig

#: Accepted values of options with a few choices.
GSP_VALUES: Mapping[str, tuple[str, ...]] = {
    "gsp.init": ("local", "image"),
    "gsp.cost": ("ball", "cosine", "norm"),
    "gsp.share": ("fixed", "image"),
}
#: Poolings that can begin as average pooling.
AVERAGING = ("gsp", "gmp+gsp", "gemean+gsp")
#: Options passed to the pooling under the same name, unless they equal their default.
GSP_OPTIONS = ("learn_eps", "cost", "share", "mix", "learn_mix")


def check_gsp(config: TrainConfig, has_attributes: bool) -> None:
    """Refuse options of GSP that the pooling does not accept, or that contradict each other.

    Args:
        config: The options as given, or resolved.
        has_attributes: Whether the pooling is or contains GSP.

    Raises:
        ConfigError: If there is one; names it.
    """
    gsp, defaults, pool = config.gsp, GspConfig(), config.pool
    for name in ("spread", "init", *GSP_OPTIONS):
        if getattr(gsp, name) != getattr(defaults, name) and not has_attributes:
            raise ConfigError(f"gsp.{name} needs a pool with GSP, got {pool}")
    if gsp.average_steps and pool not in AVERAGING:
        raise ConfigError(f"gsp.average_steps needs pool {' or '.join(AVERAGING)}, got {pool}")
    if gsp.spread is not None and (gsp.eps is not None or gsp.mu == 1):
        other = "gsp.mu 1 makes weights equal" if gsp.eps is None else "gsp.eps is given as well"
        raise ConfigError(f"gsp.spread sets gsp.eps, but {other}: leave one of them out")
    if gsp.share == "image" and gsp.mu == 1:
        raise ConfigError("gsp.share image needs gsp.mu below 1, which it starts from, got 1")
    if gsp.learn_mix and gsp.mix in (0, 1):
        raise ConfigError(
            f"gsp.mix must lie in (0, 1) with gsp.learn_mix, which starts from it, got {gsp.mix}"
        )
