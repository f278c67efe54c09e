"""The broker's settings: from file and command line, changed at run time, and as inherited by topics.

Layers, of which later ones take precedence: defaults, static (file, command line), dynamic default (all brokers),
dynamic (this broker). A dynamic value also hides its synonyms in lower layers: a dynamic log.retention.ms hides a
log.retention.hours of the file. Source: DynamicBrokerConfig.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, cast

from ..arguments import MAX_STRING_BYTES, fault_of
from ..metadata.endpoint import Endpoint
from ..security.identity import ANONYMOUS, parse_super_users
from .broker_keys import AUTHORIZER_KEYS
from .definitions import (
    ConfigError,
    ConfigKey,
    UnknownConfigError,
    UnmetRequirement,
    UpdateMode,
    Value,
)
from .endpoints import parse_endpoints, parse_host_port, parse_protocol_map
from .listener_settings import ListenerSettings
from .logins import check_mechanisms
from .requirements import (
    check_broker_values,
    check_topic_values,
    connection_overrides,
    log_dirs,
    metadata_dir,
)
from .tables import (
    BROKER,
    CLUSTER_LISTENER_KEYS,
    LISTENER_PREFIX,
    QUOTA,
    TOPIC,
    broker_synonyms,
    find_broker_key,
    is_newer_name,
    is_password,
    listener_base,
    nearest,
)
from .topic_keys import SERVER_SYNONYMS

if TYPE_CHECKING:
    from .stored_passwords import StoredPasswords

logger = logging.getLogger(__name__)

#: The number of unknown keys that are named, each with the nearest known one: finding that takes milliseconds.
MAX_UNKNOWN_TOLD = 50

Properties = Mapping[str, str]
Listener = Callable[[frozenset[str]], object]

#: Security keys that can be changed at run time only for one listener, by their prefix.
SECURITY_PREFIX = "ssl."
#: Settings that are strings in the answers to every client; others only in those of DescribeConfigs.
TOLD = ("advertised.listeners", "broker.rack", "listeners")
THREAD_KEYS = (
    "background.threads",
    "log.cleaner.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)


class BrokerConfig:
    """Typed settings by Kafka's name: `config["log.segment.bytes"]`.

    Errors: ConfigError from the constructor for the first invalid value; KeyError for a name that no table has.
    """

    def __init__(self, static: Properties | None = None) -> None:
        self.static: dict[str, str] = _with_both_ids(dict(static or {}))
        self.dynamic_default: dict[str, str] = {}
        self.dynamic_broker: dict[str, str] = {}
        self._listeners: list[Listener] = []
        self._checks: list[Callable[[BrokerConfig], object]] = []
        self.effective = self.static
        self.values = _parse(self.static)
        check_broker_values(self.values)
        self._passwords: StoredPasswords | None = None
        if self.values["password.encoder.secret"] is not None:
            _ = self.passwords  # refuses invalid settings of the encoder
        self._check_endpoints()

    # Typed access

    def __getitem__(self, name: str) -> Value:
        return self.values[name]

    def get_int(self, name: str) -> int:
        """A whole number. Errors: TypeError if there is no value or another type."""
        value = self.values[name]
        if type(value) is not int:
            raise TypeError(f"{name} is {value!r}, not a whole number")
        return value

    def get_float(self, name: str) -> float:
        """A number that may have a fraction."""
        value = self.values[name]
        if not isinstance(value, int | float):
            raise TypeError(f"{name} is {value!r}, not a number")
        return float(value)

    def get_bool(self, name: str) -> bool:
        """true or false."""
        value = self.values[name]
        if not isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}, neither true nor false")
        return value

    def get_str(self, name: str) -> str:
        """A string, which must be set or have a default."""
        value = self.values[name]
        if not isinstance(value, str):
            raise TypeError(f"{name} is {value!r}, not a string")
        return value

    def get_optional_str(self, name: str) -> str | None:
        """A string; None if it is not set and has no default."""
        return None if self.values[name] is None else self.get_str(name)

    def get_list(self, name: str) -> list[str]:
        """The items of a list."""
        value = self.values[name]
        if not isinstance(value, list):
            raise TypeError(f"{name} is {value!r}, not a list")
        return value

    # Settings that combine several values

    @property
    def node_id(self) -> int:
        """broker.id; -1 if it is not set."""
        return self.get_int("broker.id")

    @property
    def log_dirs(self) -> list[str]:
        """The data directories."""
        return log_dirs(self.values)

    @property
    def metadata_dir(self) -> str:
        """The directory that holds the embedded store: metadata.log.dir, or the first data directory."""
        return metadata_dir(self.values)

    @property
    def zookeeper_connect(self) -> str | None:
        """The address of the cluster's ZooKeeper; None for a single broker."""
        return self.get_optional_str("zookeeper.connect") or None

    @property
    def has_authorizer(self) -> bool:
        """Whether ACLs limit what clients may do."""
        return bool(self.values["authorizer.class.name"])

    @property
    def super_users(self) -> frozenset[str]:
        """The principals that have every permission."""
        return parse_super_users(self.get_str("super.users"))

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The listeners to open; without those of a KRaft controller."""
        controller = str(self.values["controller.listener.names"] or "").upper()
        names = {name.strip() for name in controller.split(",")} if controller else set()
        endpoints = parse_endpoints("listeners", self.get_str("listeners"), self._protocols())
        return tuple(endpoint for endpoint in endpoints if endpoint.listener not in names)

    @property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The addresses given to clients; empty if each client gets the address that it connected to."""
        key = "advertised.listeners"
        text = self.get_optional_str(key)
        if text is None:
            return ()
        own = {endpoint.listener for endpoint in self.listeners}
        advertised = parse_endpoints(key, text, self._protocols())
        return tuple(endpoint for endpoint in advertised if endpoint.listener in own)

    @property
    def inter_broker_listener(self) -> Endpoint:
        """The listener that other brokers use."""
        name = self.get_optional_str("inter.broker.listener.name")
        protocol = self.get_str("security.inter.broker.protocol")
        for endpoint in self.listeners:
            if endpoint.listener == name or (
                name is None and endpoint.security_protocol == protocol
            ):
                return endpoint
        if name is not None:
            others = ", ".join(endpoint.listener for endpoint in self.listeners)
            raise UnmetRequirement(
                f"there is no listener of this name in listeners, but {others}",
                "inter.broker.listener.name",
                name,
            )
        others = " or ".join(sorted({endpoint.security_protocol for endpoint in self.listeners}))
        raise UnmetRequirement(
            "no listener has this protocol, which brokers use for connections to each other;"
            f" set it to {others}, also for a broker that is alone",
            "security.inter.broker.protocol",
            protocol,
        )

    @property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """Address -> maximum number of connections."""
        return connection_overrides(self.get_str("max.connections.per.ip.overrides"))

    @property
    def http_listener(self) -> Endpoint | None:
        """The address for HTTP; None if it is not served. Shape: a port without a host is on the loopback interface."""
        text = self.get_optional_str("kwire.http.listener")
        if not text:
            return None
        if text.isdecimal():
            text = f"localhost:{text}"
        host, port = parse_host_port(text, "kwire.http.listener")
        return Endpoint("HTTP", host, port)

    def listener(self, name: str) -> ListenerSettings:
        """The settings of one listener: its own (`listener.name.<listener>.<key>`) over the plain ones."""
        return ListenerSettings(self, name)

    def _protocols(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        protocols = parse_protocol_map(self.get_str(key))
        if key not in self.effective:
            # As in KRaft's default map, controller listeners need no entry.
            for name in str(self.values["controller.listener.names"] or "").split(","):
                protocols.setdefault(name.strip().upper(), "PLAINTEXT")
        return protocols

    def _check_endpoints(self) -> None:
        listeners = self.listeners
        if not listeners:
            raise UnmetRequirement(
                "There must be at least one listener", "listeners", self.get_str("listeners")
            )
        ports = [endpoint.port for endpoint in listeners if endpoint.port]
        if len(set(ports)) < len(ports):
            text = self.get_str("listeners")
            raise UnmetRequirement(
                f"Each listener must have a different port, listeners: {text}", "listeners", text
            )
        for endpoint in self.advertised_listeners:
            if endpoint.host in ("0.0.0.0", "::", "[::]"):
                raise UnmetRequirement(
                    "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
                    "advertised.listeners",
                    str(endpoint),
                )
        _ = self.inter_broker_listener, self.http_listener
        for endpoint in listeners:
            if endpoint.has_logins:
                check_mechanisms(self.listener(endpoint.listener))

    @property
    def passwords(self) -> StoredPasswords:
        """Decodes and encodes the passwords among stored configs."""
        if self._passwords is None:
            from .stored_passwords import StoredPasswords

            self._passwords = StoredPasswords(self.values)
        return self._passwords

    # Changes at run time

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(changed names)` after each change; returns a function that removes it.

        Shape: the names are those of broker keys whose effective value has changed, including keys of single listeners
        (`listener.name.<listener>.<key>`).
        """
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def add_check(self, check: Callable[[BrokerConfig], object]) -> None:
        """Let `check` refuse changes at run time that a component in use could not follow.

        Shape: it is called with the proposed settings, and raises ConfigError.
        """
        self._checks.append(check)

    def set_dynamic(
        self, *, broker: Properties | None = None, default: Properties | None = None
    ) -> frozenset[str]:
        """Apply the configs stored for this broker or for all; None leaves that layer unchanged.

        Invalid stored values are logged and ignored, so that a bad entry cannot prevent a broker from starting. Returns
        the names whose effective value changed.
        """
        if broker is not None:
            self.dynamic_broker = self.usable_dynamic(broker, per_broker=True)
        if default is not None:
            self.dynamic_default = self.usable_dynamic(default, per_broker=False)
        effective = overlay(self.static, self.dynamic_default, self.dynamic_broker)
        try:
            values = _parse(effective)
            check_broker_values(values)
        except ConfigError as error:
            logger.error("Stored dynamic configs could not be applied: %s", error)
            return frozenset()
        before, texts_before = self.values, self.effective
        self.effective, self.values = effective, values
        changed = frozenset(name for name, value in values.items() if value != before[name])
        changed |= _changed_of_listeners(texts_before, effective)
        if changed:
            for listener in tuple(self._listeners):
                listener(changed)
        return changed

    def usable_dynamic(self, stored: Properties, *, per_broker: bool) -> dict[str, str]:
        """A stored dynamic layer with plain passwords, without invalid entries, which are logged."""
        usable: dict[str, str] = {}
        for name, text in stored.items():
            try:
                _check_dynamic_names({name: text}, per_broker)
            except ConfigError as error:
                logger.error("A stored dynamic config is invalid and ignored: %s", error)
            else:
                usable[name] = text
        return self.passwords.decode(usable) if any(map(is_password, usable)) else usable

    def to_stored(self, proposed: Properties, stored: Properties) -> dict[str, str]:
        """The stored form of a dynamic layer, with encoded passwords. Shape: `stored` is the layer that it replaces.
        Errors: NoSecret.
        """
        if any(map(is_password, proposed)):
            return self.passwords.encode(proposed, stored)
        return dict(proposed)

    def check_dynamic(self, proposed: Properties, *, per_broker: bool) -> None:
        """Check whether a whole dynamic layer may be stored. Errors: ConfigError, as in AlterConfigs.

        Source: DynamicBrokerConfig.validate, with the same order of checks.
        """
        _check_dynamic_names(proposed, per_broker)
        if per_broker:
            effective = overlay(self.static, self.dynamic_default, proposed)
        else:
            effective = overlay(self.static, proposed, self.dynamic_broker)
        values = _parse(effective)
        check_broker_values(values)
        limit = values["max.connections"]
        if isinstance(limit, int) and limit <= 0:
            raise _invalid_dynamic(f"Invalid max.connections {limit}")
        for key in THREAD_KEYS:
            _check_thread_count(key, cast(int, self.values[key]), cast(int, values[key]))
        parse_protocols = parse_protocol_map(str(values["listener.security.protocol.map"]))
        for key in ("listeners", "advertised.listeners"):
            if values[key] is not None and key in proposed:
                parse_endpoints(key, str(values[key]), parse_protocols)
        if self._checks:
            proposal = copy(self)
            proposal.effective, proposal.values = effective, values
            for check in self._checks:
                check(proposal)

    def replication_rate(self, name: str) -> int:
        """A replication quota in bytes/s; a file cannot set it. Source: BrokerConfigHandler."""
        text = self.dynamic_broker.get(name, self.dynamic_default.get(name))
        return cast(int, QUOTA[name].parse(QUOTA[name].default if text is None else text))

    # Topics

    def topic_config(self, overrides: Properties) -> dict[str, Value]:
        """Every topic config, typed: the topic's own values over this broker's defaults.

        Errors: ConfigError for an invalid override; unknown names are ignored.
        """
        values: dict[str, Value] = {name: self.topic_default(name) for name in TOPIC}
        for name, text in overrides.items():
            key = TOPIC.get(name)
            if key is not None:
                values[name] = key.parse(text)
        return values

    def topic_default(self, name: str) -> Value:
        """The value of `name` for a topic without an override. Source: KafkaConfig.extractLogConfigMap."""
        for synonym, factor in SERVER_SYNONYMS.get(name, ()):
            value = self.values[synonym]
            if value is not None:
                return value if factor == 1 else _scaled(cast(int, value), factor)
        return TOPIC[name].parse(TOPIC[name].default)

    def check_topic(self, overrides: Properties) -> None:
        """Check whether a topic may have these overrides. Errors: ConfigError, with Kafka's message. Source:
        LogConfig.validate.
        """
        for name in overrides:
            if name not in TOPIC:
                raise UnknownConfigError(f"Unknown topic config name: {name}", name)
        check_topic_values(self.topic_config(overrides))

    # Notices for the operator

    def notices(self) -> list[str]:
        """One sentence for all keys without effect, and one for each unknown key."""
        sentences = []
        idle = sorted(name for name in self.static if _is_idle(name))
        if idle:
            sentences.append(f"Accepted without effect in kwire: {', '.join(idle)}")
        if not self.zookeeper_connect and {"process.roles", "controller.quorum.voters"} & set(
            self.static
        ):
            sentences.append(
                "These are settings for KRaft, which kwire does not have: the embedded store in"
                f" {self.log_dirs[0]} stands in for the controllers"
            )
        if not self.http_listener:
            sentences += [
                f"{name} has no effect without kwire.http.listener"
                for name in sorted(self.static)
                if name.startswith("kwire.console.")
            ]
        unknown = sorted(unknown_keys(self.static))
        for name in unknown[:MAX_UNKNOWN_TOLD]:
            guess = nearest(name)
            hint = f"; the nearest known one is {guess}" if guess else ""
            sentences.append(f"{name} is not a config of Apache Kafka or kwire{hint}")
        if len(unknown) > MAX_UNKNOWN_TOLD:
            more = len(unknown) - MAX_UNKNOWN_TOLD
            sentences.append(f"{more} more keys are no configs of Apache Kafka or kwire")
        if not self.has_authorizer:
            sentences += [
                f"{name} has no effect without authorizer.class.name"
                for name in AUTHORIZER_KEYS
                if name in self.static
            ]
        else:
            sentences += self._authorizer_notices()
        return sentences + self._tls_notices()

    def _tls_notices(self) -> list[str]:
        """Notices about settings of TLS that no listener reads."""
        names = sorted(name for name in self.static if name.startswith(SECURITY_PREFIX))
        names = [name for name in names if not _is_idle(name)]
        encrypted = [each for each in self.listeners if each.is_encrypted]
        if names and not encrypted:
            return [f"No listener uses TLS, so these have no effect: {', '.join(names)}"]
        if "ssl.client.auth" in names and all(each.has_logins for each in encrypted):
            return [
                "ssl.client.auth has no effect on listeners with SASL_SSL, unless it is set for the listener:"
                f" listener.name.{encrypted[0].listener.lower()}.ssl.client.auth"
            ]
        return []

    def _authorizer_notices(self) -> list[str]:
        """Notices about limits of ACLs because of clients without a login."""
        if ANONYMOUS in self.super_users:
            who = "every client that does not log in" if self._has_logins() else "every client"
            return [
                f"super.users names {ANONYMOUS}, the principal of {who}: it may do everything,"
                " regardless of ACLs"
            ]
        if self.super_users and not self._has_logins():
            return [
                f"super.users has no effect on clients: no client logs in, so all of them are {ANONYMOUS}"
            ]
        return []

    def _has_logins(self) -> bool:
        """Whether any listener identifies its clients."""
        return any(
            endpoint.has_logins
            or (
                endpoint.is_encrypted
                and self.listener(endpoint.listener).get_str("ssl.client.auth") != "none"
            )
            for endpoint in self.listeners
        )


def unknown_keys(names: Iterable[str]) -> list[str]:
    """Those of `names` that exist neither in Apache Kafka (3.9 or later) nor in kwire."""
    return [name for name in names if find_broker_key(name) is None and not is_newer_name(name)]


def overlay(static: Properties, *layers: Properties) -> dict[str, str]:
    """Put layers over the static one; each value hides its synonyms in lower layers. Source: overrideProps."""
    result = dict(static)
    for layer in layers:
        for name, value in layer.items():
            for synonym in broker_synonyms(name, with_listener=False):
                result.pop(synonym, None)
            result[name] = value
    return result


def _changed_of_listeners(before: Properties, after: Properties) -> frozenset[str]:
    """The keys of single listeners that were set, changed or removed."""
    names = {name for name in (*before, *after) if name.startswith(LISTENER_PREFIX)}
    return frozenset(name for name in names if before.get(name) != after.get(name))


def _parse(properties: Properties) -> dict[str, Value]:
    values: dict[str, Value] = dict(_defaults())
    for name, text in properties.items():
        key = find_broker_key(name)
        if key is not None:
            refused = fault_of(text, MAX_STRING_BYTES if name in TOLD else None)
            if refused is not None:
                reason = f"the value {refused}"
                raise ConfigError(f"Invalid value for {name}: {reason}", name, None, reason)
            value = key.parse(text)
            if name in values:
                values[name] = value
    return values


_DEFAULT_VALUES: dict[str, Value] = {}


def _defaults() -> dict[str, Value]:
    if not _DEFAULT_VALUES:
        _DEFAULT_VALUES.update((key.name, key.convert(key.default)) for key in BROKER.values())
    return _DEFAULT_VALUES


def _with_both_ids(static: dict[str, str]) -> dict[str, str]:
    """broker.id and node.id are one setting; Kafka fills in the missing one."""
    broker, node = static.get("broker.id"), static.get("node.id")
    if broker is not None and node is not None and broker.strip() != node.strip():
        raise ConfigError(
            f"You must set `node.id` to the same value as `broker.id`: {node} and {broker}",
            "node.id",
            node,
        )
    number = broker if broker is not None else node
    if number is not None:
        static["broker.id"] = static["node.id"] = number
    return static


def _check_dynamic_names(proposed: Properties, per_broker: bool) -> None:
    fixed = [name for name in proposed if name in BROKER and not _is_dynamic(BROKER[name])]
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: {_scala_set(fixed)}")
    security = [name for name in proposed if name in BROKER and name.startswith(SECURITY_PREFIX)]
    if security:
        raise ConfigError(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"Hash{_scala_set(security)}"
        )
    for name, text in proposed.items():
        key = find_broker_key(name)
        if key is not None:
            key.parse(text)
    if not per_broker:
        own = [name for name in proposed if _is_per_broker(name)]
        if own:
            raise ConfigError(
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"{_scala_set(own)}"
            )


def _is_dynamic(key: ConfigKey) -> bool:
    return key.update is not UpdateMode.READ_ONLY


def _is_per_broker(name: str) -> bool:
    base = listener_base(name)
    if base is not None:
        return base not in CLUSTER_LISTENER_KEYS
    key = BROKER.get(name)
    return key is not None and key.update is UpdateMode.PER_BROKER


def _is_idle(name: str) -> bool:
    if is_newer_name(name) or name in QUOTA:
        return True
    key = find_broker_key(name)
    return key is not None and not key.used


def _scala_set(names: list[str]) -> str:
    return f"Set({', '.join(names)})"


def _invalid_dynamic(reason: str) -> ConfigError:
    # Kafka nests one exception in another and passes them as a name and a value; clients see the result.
    return ConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {reason} "
        "for configuration Invalid dynamic configuration"
    )


def _check_thread_count(key: str, before: int, after: int) -> None:
    """As in Kafka, allow only moderate changes of a pool. Source: DynamicThreadPool.validateReconfiguration."""
    if after == before:
        return
    failed = f"Dynamic thread count update validation failed for {key}={after}"
    if after < 1:
        raise _invalid_dynamic(f"{failed}, value should be at least 1")
    if after < before // 2:
        raise _invalid_dynamic(
            f"{failed}, value should be at least half the current value {before}"
        )
    if after > before * 2:
        message = f"{failed}, value should not be greater than double the current value {before}"
        raise _invalid_dynamic(message)


def _scaled(value: int, factor: int) -> int:
    return -1 if value < 0 else value * factor
