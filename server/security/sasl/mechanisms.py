"""The SASL mechanisms that kwire has, and how those of a listener are made from its settings.

A mechanism is a row in `MECHANISMS`: its name and the function that makes it. The function imports what the mechanism
needs, so that nobody pays for mechanisms that are not enabled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .mechanism import Mechanism
    from .scram import KnownUser

ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"


class Settings(Protocol):
    """The settings of a listener, or of one of its mechanisms; see config/listener_settings.py."""

    def mechanism(self, name: str) -> Settings: ...
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
class Sources:
    """What mechanisms ask while clients log in."""

    #: Sanitized user name -> config, of the current image.
    user_configs: Callable[[], Mapping[str, Mapping[str, str]]]
    #: The name of a user's config.
    sanitize: Callable[[str], str]
    #: (mechanism, token id) -> the delegation token, if there is one.
    token: Callable[[str, str], KnownUser | None]
    #: Wall clock.
    now_ms: Callable[[], int]
    #: Runs a call that blocks in a thread.
    in_thread: Callable[..., Awaitable[Any]]


#: Makes one mechanism of a listener. Shape: (its settings, its login module or None if none is set, sources).
#: Errors: what `Settings.refusal` returns.
Factory = Callable[[Settings, "LoginModule | None", Sources], "Mechanism"]


def plain(settings: Settings, module: LoginModule | None, sources: Sources) -> Mechanism:
    """PLAIN, whose users are options of the login module."""
    from .plain import PLAIN, PlainMechanism

    expect_module(settings, PLAIN, module, "PlainLoginModule")
    if module is None:
        raise settings.refusal(
            ENABLED,
            f"PLAIN needs its users: set {own_name(settings, JAAS)}"
            "=org.apache.kafka.common.security.plain.PlainLoginModule required"
            ' user_<name>="<password>";',
        )
    return PlainMechanism(module.options)


def scram(name: str) -> Factory:
    """SCRAM, whose users are in the coordination store; it needs no login module."""

    def make(settings: Settings, module: LoginModule | None, sources: Sources) -> Mechanism:
        from .scram import ScramMechanism, ScramUsers

        expect_module(settings, name, module, "ScramLoginModule")
        users = ScramUsers(name, sources.user_configs, sources.sanitize)
        return ScramMechanism(name, users, lambda token: sources.token(name, token))

    return make


MECHANISMS: dict[str, Factory] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": scram("SCRAM-SHA-256"),
    "SCRAM-SHA-512": scram("SCRAM-SHA-512"),
}


def build_mechanisms(settings: Settings, sources: Sources) -> dict[str, Mechanism]:
    """The enabled mechanisms of a listener by name, in the order of `sasl.enabled.mechanisms`.

    Errors: a ConfigError that names the setting, for a mechanism that kwire does not have and for settings of one
    that cannot work.
    """
    enabled = [name.strip() for name in settings.get_list(ENABLED) if name.strip()]
    if not enabled:
        raise settings.refusal(ENABLED, "a SASL listener needs a mechanism", ", ".join(MECHANISMS))
    made: dict[str, Mechanism] = {}
    for name in enabled:
        factory = MECHANISMS.get(name)
        if factory is None:
            raise settings.refusal(ENABLED, f"kwire has no {name}", ", ".join(MECHANISMS))
        own = settings.mechanism(name)
        made[name] = factory(own, login_module(own), sources)
    return made


def login_module(settings: Settings) -> LoginModule | None:
    """The login module of a mechanism's broker side.

    Shape: only the name with listener and mechanism counts, as in Apache Kafka, which ignores the others here.
    Source: JaasContext.loadServerContext.
    """
    text = settings.own(JAAS)
    if text is None:
        return None
    from ..jaas import JaasError, parse_jaas_config

    try:
        return parse_jaas_config(text)
    except JaasError as error:
        raise settings.refusal(JAAS, str(error)) from None


def expect_module(
    settings: Settings, mechanism: str, module: LoginModule | None, class_name: str
) -> None:
    """Refuse a login module that belongs to another mechanism."""
    if module is not None and module.class_name != class_name:
        raise settings.refusal(JAAS, f"{mechanism} needs {class_name}, not {module.class_name}")


def own_name(settings: Settings, key: str) -> str:
    """The name by which `key` is set for exactly this listener and mechanism."""
    return next(settings.names(key))
