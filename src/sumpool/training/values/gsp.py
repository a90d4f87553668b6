"""Options of generalized sum pooling: what they accept, and which contradict each other."""

from __future__ import annotations

from collections.abc import Mapping

from sumpool.training.config import ConfigError, TrainConfig
from sumpool.training.options import GspConfig

#: What options with a few values accept.
GSP_VALUES: Mapping[str, tuple[str, ...]] = {
    "gsp.init": ("local", "image"),
    "gsp.cost": ("ball", "cosine", "norm"),
    "gsp.share": ("fixed", "image"),
}
#: Poolings that can begin as average pooling.
AVERAGING = ("gsp", "gmp+gsp", "gemean+gsp")
#: Options that go to the pooling under the same name, unless they have their default.
GSP_OPTIONS = ("learn_eps", "cost", "share", "mix", "learn_mix")


def check_gsp(config: TrainConfig, has_attributes: bool) -> None:
    """Refuse options of GSP that the pooling does not take, or that contradict each other.

    Args:
        config: The options as given, or resolved.
        has_attributes: Whether the pooling is GSP, alone or as a part of it.

    Raises:
        ConfigError: Naming the option.
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
