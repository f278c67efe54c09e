"""Whether clients can log in at a listener with its settings."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from ..clock import SystemClock
from ..metadata.image import EMPTY

if TYPE_CHECKING:
    from ..security.sasl.sources import MechanismSettings


def check_mechanisms(settings: MechanismSettings) -> None:
    """Build the mechanisms of a SASL listener in the same way as the broker. Errors: ConfigError."""
    from ..security.sasl.mechanisms import build_mechanisms
    from ..security.sasl.sources import LoginServices

    def nothing(*_: object) -> None:
        return None

    def no_thread(*_: object) -> Awaitable[Any]:
        raise RuntimeError("mechanisms are only checked")

    sources = LoginServices(
        user_configs=lambda: EMPTY,
        sanitize=str,
        token=nothing,
        clock=SystemClock(),
        warn=nothing,
        in_thread=no_thread,
    )
    build_mechanisms(settings, sources)
