"""The SASL mechanisms of kwire, and their construction from a listener's settings.

A mechanism is a row in `MECHANISMS`, and its modules. These are imported on first use, so that disabled mechanisms cost
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from .scram_numbers import TYPES as SCRAM_TYPES

if TYPE_CHECKING:
    from ...clock import Clock
    from ..jaas import LoginModule
    from .mechanism import Mechanism, SaslClient
    from .sources import LoginServices, MechanismSettings

NONE: Mapping[str, Mechanism] = MappingProxyType({})
ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
#: The package of Apache Kafka's own handlers, which do the same as the mechanisms here.
OWN_HANDLERS = "org.apache.kafka.common.security."


class MechanismKind(NamedTuple):
    """A mechanism: its modules, which are imported when they are used, and what depends on it elsewhere.

    Shape: `module` is the one in this folder whose `mechanism_of(name, settings, login module or None, sources)` makes
    the broker's side. `login_module` is the class of Apache Kafka's login module. `login` is the module whose
    `login_of(settings, login module, clock)` gives a broker's logins at other brokers; None if `clients.py` makes these
    from a user and a password. `reads_files` says that files may be read when it is made: keytabs and key sets.
    `in_commands` says that commands can log in with it.
    """

    name: str
    module: str
    login_module: str
    login: str | None = None
    reads_files: bool = False
    in_commands: bool = True

    def make(
        self, settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
    ) -> Mechanism:
        """Make the mechanism of a listener. Errors: what `MechanismSettings.refusal` returns."""
        self.expect(settings, module)
        made: Mechanism = _load(self.module).mechanism_of(self.name, settings, module, sources)
        return made

    def logins(
        self, settings: MechanismSettings, module: LoginModule, clock: Clock
    ) -> BrokerLogins | None:
        """This broker's logins at other brokers; None if they need only a user and a password.

        Errors: what `MechanismSettings.refusal` returns.
        """
        if self.login is None:
            return None
        self.expect(settings, module)
        logins: BrokerLogins = _load(self.login).login_of(settings, module, clock)
        return logins

    @property
    def class_name(self) -> str:
        """The name of the login module's class, without its package."""
        return self.login_module.rpartition(".")[2]

    def expect(self, settings: MechanismSettings, module: LoginModule | None) -> None:
        """Refuse a login module that belongs to another mechanism."""
        if module is not None and module.class_name != self.class_name:
            reason = f"{self.name} needs {self.class_name}, not {module.class_name}"
            raise settings.refusal(JAAS, reason)


class BrokerLogins(Protocol):
    """A broker's logins at other brokers."""

    def client(self, host: str) -> SaslClient:
        """A new login at a host. This may block, so it is called in a thread. Errors: LoginFailed."""
        ...


def _load(module: str) -> Any:
    return import_module(f".{module}", __package__)


#: All mechanisms, by name.
MECHANISMS = {
    each.name: each
    for each in (
        MechanismKind(
            "GSSAPI",
            "gssapi_server",
            "com.sun.security.auth.module.Krb5LoginModule",
            login="gssapi_login",
            reads_files=True,
        ),
        MechanismKind(
            "OAUTHBEARER",
            "oauthbearer",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
            login="oauthbearer_login",
            reads_files=True,
            in_commands=False,
        ),
        MechanismKind("PLAIN", "plain", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        *(
            MechanismKind(
                name, "scram_server", "org.apache.kafka.common.security.scram.ScramLoginModule"
            )
            for name in SCRAM_TYPES
        ),
    )
}


def enabled_names(settings: MechanismSettings) -> list[str]:
    """The names in `sasl.enabled.mechanisms`, in order."""
    return [name.strip() for name in settings.get_list(ENABLED) if name.strip()]


def changed_mechanisms(settings: MechanismSettings, changed: Collection[str]) -> set[str]:
    """The enabled mechanisms of a listener that depend on settings with these names; all of them if the list has
    changed.
    """
    enabled = enabled_names(settings)
    if any(name in changed for name in settings.names(ENABLED)):
        return set(enabled or MECHANISMS)
    keys = {name[name.rindex("sasl.") :] for name in changed if "sasl." in name}
    return {
        mechanism
        for mechanism in enabled
        if any(name in changed for key in keys for name in settings.mechanism(mechanism).names(key))
    }


def build_mechanisms(
    settings: MechanismSettings, sources: LoginServices, kept: Mapping[str, Mechanism] = NONE
) -> dict[str, Mechanism]:
    """The enabled mechanisms of a listener by name, in the order of `sasl.enabled.mechanisms`.

    Shape: mechanisms in `kept` are not made again.
    Errors: a ConfigError that names the setting, for an unknown mechanism and for settings of a mechanism that cannot
    work.
    """
    enabled = enabled_names(settings)
    if not enabled:
        raise settings.refusal(ENABLED, "a SASL listener needs a mechanism", ", ".join(MECHANISMS))
    made: dict[str, Mechanism] = {}
    for name in enabled:
        kind = MECHANISMS.get(name)
        if kind is None:
            raise settings.refusal(ENABLED, f"kwire has no {name}", ", ".join(MECHANISMS))
        own = settings.mechanism(name)
        handler = own.get_optional_str(HANDLER)
        if handler is not None and not handler.startswith(OWN_HANDLERS):
            raise own.refusal(
                HANDLER, f"kwire cannot run Java classes, such as this one for {name}"
            )
        made[name] = kept[name] if name in kept else kind.make(own, login_module(own), sources)
    return made


def login_module(settings: MechanismSettings) -> LoginModule | None:
    """The login module of the broker's side of a mechanism.

    Shape: only the name with listener and mechanism counts, as in Apache Kafka, which ignores the other names here.
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


def own_name(settings: MechanismSettings, key: str) -> str:
    """The name that sets `key` for exactly this listener and mechanism."""
    return next(settings.names(key))
