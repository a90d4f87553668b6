"""Errors of training runs."""

import math

from sumpool.system.errors import UserError


class RunError(UserError):
    """A run cannot start, resume or be read; the message says what, where, and what is kept."""


def check_finite(loss: float, when: str, rate: float, kept: str) -> None:
    """Stop a run whose loss, or an embedding in it, is no longer finite.

    Args:
        loss: The loss, or a mean or sum of losses.
        when: The steps of this loss, for the message.
        rate: The learning rate.
        kept: What is kept of the run, for the message.

    Raises:
        RunError: If the loss is not finite.
    """
    if not math.isfinite(loss):
        raise RunError(
            f"the loss is {loss} {when}: lower optimizer.lr, which is {rate:g}, or look for "
            f"damaged images; {kept} is kept"
        )
