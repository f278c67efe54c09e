"""SCRAM at a listener: its users are those of the coordination store, and delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .scram import ScramMechanism, ScramUsers

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .sources import LoginServices, MechanismSettings


def mechanism_of(
    name: str, settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> ScramMechanism:
    """The mechanism of a listener; see Kind."""
    users = ScramUsers(name, sources.user_configs, sources.sanitize)
    return ScramMechanism(name, users, lambda token: sources.token(name, token))
