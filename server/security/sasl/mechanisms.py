"""The SASL mechanisms of kwire, and their construction from a listener's settings.

A mechanism is a row in `MECHANISMS`: its name and the function that makes it. The function imports the mechanism's
modules, so that disabled mechanisms cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..jaas import LoginModule
    from .mechanism import Mechanism
    from .sources import LoginServices, MechanismSettings

NONE: Mapping[str, Mechanism] = MappingProxyType({})
ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
HANDLER = "sasl.server.callback.handler.class"
#: The package of Apache Kafka's own handlers, which do the same as the mechanisms here.
OWN_HANDLERS = "org.apache.kafka.common.security."


#: Makes one mechanism of a listener. Shape: (its settings, its login module or None if none is set, sources).
#: Errors: what `MechanismSettings.refusal` returns.
Factory = Callable[["MechanismSettings", "LoginModule | None", "LoginServices"], "Mechanism"]


def plain(
    settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> Mechanism:
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

    def make(
        settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
    ) -> Mechanism:
        from .scram import ScramMechanism, ScramUsers

        expect_module(settings, name, module, "ScramLoginModule")
        users = ScramUsers(name, sources.user_configs, sources.sanitize)
        return ScramMechanism(name, users, lambda token: sources.token(name, token))

    return make


def oauthbearer(
    settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> Mechanism:
    """OAUTHBEARER, with signed tokens unless unsigned ones are enabled."""
    from .oauthbearer import mechanism_of

    expect_module(settings, "OAUTHBEARER", module, "OAuthBearerLoginModule")
    return mechanism_of(settings, module, sources)


def gssapi(
    settings: MechanismSettings, module: LoginModule | None, sources: LoginServices
) -> Mechanism:
    """GSSAPI, with the keytab of the login module; the library is an extra."""
    from .gssapi_server import expect_library, mechanism_of

    expect_library(settings)
    expect_module(settings, "GSSAPI", module, "Krb5LoginModule")
    if module is None:
        raise settings.refusal(
            ENABLED,
            f"GSSAPI needs its keytab: set {own_name(settings, JAAS)}="
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
            ' keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";',
        )
    return mechanism_of(settings, module, sources)


MECHANISMS: dict[str, Factory] = {
    "GSSAPI": gssapi,
    "OAUTHBEARER": oauthbearer,
    "PLAIN": plain,
    "SCRAM-SHA-256": scram("SCRAM-SHA-256"),
    "SCRAM-SHA-512": scram("SCRAM-SHA-512"),
}


#: Mechanisms that may read files when they are made: keytabs and key sets.
READ_FILES = frozenset({"GSSAPI", "OAUTHBEARER"})


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
        factory = MECHANISMS.get(name)
        if factory is None:
            raise settings.refusal(ENABLED, f"kwire has no {name}", ", ".join(MECHANISMS))
        own = settings.mechanism(name)
        handler = own.get_optional_str(HANDLER)
        if handler is not None and not handler.startswith(OWN_HANDLERS):
            raise own.refusal(
                HANDLER, f"kwire cannot run Java classes, such as this one for {name}"
            )
        made[name] = kept[name] if name in kept else factory(own, login_module(own), sources)
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


def expect_module(
    settings: MechanismSettings, mechanism: str, module: LoginModule | None, class_name: str
) -> None:
    """Refuse a login module that belongs to another mechanism."""
    if module is not None and module.class_name != class_name:
        raise settings.refusal(JAAS, f"{mechanism} needs {class_name}, not {module.class_name}")


def own_name(settings: MechanismSettings, key: str) -> str:
    """The name that sets `key` for exactly this listener and mechanism."""
    return next(settings.names(key))
