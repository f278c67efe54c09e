"""The sources of mechanisms: the settings of a listener, and the services that they use while clients log in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...clock import Clock
    from .scram import KnownUser


class MechanismSettings(Protocol):
    """The settings of a listener, or of one of its mechanisms; see config/listener_settings.py."""

    def mechanism(self, name: str) -> MechanismSettings: ...
    def own(self, key: str) -> str | None: ...
    def names(self, key: str) -> Iterator[str]: ...
    def name_in_use(self, key: str) -> str: ...
    def has(self, key: str) -> bool: ...
    def get_int(self, key: str) -> int: ...
    def get_str(self, key: str) -> str: ...
    def get_optional_str(self, key: str) -> str | None: ...
    def get_list(self, key: str) -> list[str]: ...
    def refusal(self, key: str, reason: str, allowed: str | None = None) -> Exception: ...


@dataclass(frozen=True, slots=True, repr=False)
class LoginServices:
    """The services that mechanisms use while clients log in."""

    #: Sanitized user name -> config, of the current image.
    user_configs: Callable[[], Mapping[str, Mapping[str, str]]]
    #: The name of a user's config.
    sanitize: Callable[[str], str]
    #: (mechanism, token id) -> the delegation token, if there is one; an awaitable at its first login.
    token: Callable[[str, str], KnownUser | Awaitable[KnownUser | None] | None]
    clock: Clock
    #: Warns the operator about settings that work, at startup.
    warn: Callable[[str], None]
    #: Runs a blocking call in a thread.
    in_thread: Callable[..., Awaitable[Any]]
