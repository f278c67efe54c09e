"""The login of this broker at other brokers, with the login module of the listener between brokers.

As in Apache Kafka, it is the login module of the broker's side of that listener, for the mechanism in
`sasl.mechanism.inter.broker.protocol`; its options `username` and `password` are this broker's own.
Source: ChannelBuilders.create (JaasContext.Type.SERVER), SaslChannelBuilder.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..config import ConfigError
from ..net.log_limit import LineLimiter
from ..security.jaas import JaasError, LoginModule, parse_jaas_config
from ..security.sasl.clients import password_client
from ..security.sasl.mechanisms import MECHANISMS

if TYPE_CHECKING:
    from ..clock import Clock
    from ..config import BrokerConfig
    from ..config.listener_settings import ListenerSettings
    from ..security.sasl.mechanism import SaslClient

logger = logging.getLogger(__name__)

MECHANISM = "sasl.mechanism.inter.broker.protocol"
JAAS = "sasl.jaas.config"
#: A refused login is logged again after this time, for each broker that refuses it.
LOG_AGAIN_MS = 60_000

#: Makes the client's half of a login at a host.
NewClient = Callable[[str], Awaitable["SaslClient"]]
InThread = Callable[..., Awaitable[Any]]


class LoginSettings(NamedTuple):
    """The settings of this broker's logins at others. Shape: `user` is None if the mechanism determines it."""

    mechanism: str
    user: str | None
    new_client: NewClient


class BrokerLogin:
    """Logins at other brokers; one object for all channels. Shape: `read` is called again when settings change."""

    def __init__(self, read: Callable[[], LoginSettings], clock: Clock) -> None:
        """Errors: those of `read`."""
        self._read = read
        self._own = read()
        self._lines = LineLimiter(logger, clock.monotonic_ms, lines=1, window_ms=LOG_AGAIN_MS)
        self._refused: set[str] = set()

    @property
    def mechanism(self) -> str:
        """The mechanism of the next login."""
        return self._own.mechanism

    @property
    def user(self) -> str | None:
        """The user of the login; None if the mechanism determines it."""
        return self._own.user

    def take_up(self, changed: frozenset[str]) -> None:
        """Use settings that were changed at run time, from the next connection on."""
        if not any("sasl." in name for name in changed):
            return
        try:
            self._own = self._read()
        except ConfigError as error:
            logger.error("changed settings for logins to other brokers are not applied: %s", error)

    async def client(self, host: str) -> SaslClient:
        """The client's half of a new login at a host. Errors: LoginFailed."""
        return await self._own.new_client(host)

    def succeeded(self, address: str) -> None:
        """Log once that a login is accepted after a refusal."""
        if address in self._refused:
            self._refused.discard(address)
            logger.info("The broker at %s accepts this broker's login again", address)

    def failed(self, address: str, reason: str) -> None:
        """Log that a login was refused, once a minute for each broker."""
        self._refused.add(address)
        who = "" if self.user is None else f" as {self.user}"
        self._lines.log(
            logging.ERROR,
            address,
            "Cannot log in to the broker at %s%s with %s, trying again: %s",
            address,
            who,
            self.mechanism,
            reason,
        )


def login_of(config: BrokerConfig, clock: Clock, in_thread: InThread) -> BrokerLogin | None:
    """The login that the listener between brokers requires; None if it requires none. Errors: ConfigError."""
    if not config.inter_broker_listener.security_protocol.startswith("SASL_"):
        return None
    config.add_check(lambda proposed: own_of(proposed, clock, in_thread))
    return BrokerLogin(lambda: own_of(config, clock, in_thread), clock)


def own_of(config: BrokerConfig, clock: Clock, in_thread: InThread) -> LoginSettings:
    """The current settings for a listener that requires logins. Errors: ConfigError."""
    mechanism = config.get_str(MECHANISM)
    listener = config.listener(config.inter_broker_listener.listener)
    if mechanism not in listener.get_list("sasl.enabled.mechanisms"):
        # Apache Kafka's text, from KafkaConfig.validateValues.
        raise listener.refusal(
            MECHANISM,
            f"{MECHANISM} must be included in sasl.enabled.mechanisms when SASL is used for"
            " inter-broker communication",
        )
    settings = listener.mechanism(mechanism)
    module = login_module(settings)
    kind = MECHANISMS.get(mechanism)
    if kind is None:
        raise settings.refusal(MECHANISM, f"kwire has no {mechanism}")
    logins = kind.logins(settings, module, clock)
    if logins is not None:

        async def new_login(host: str) -> SaslClient:
            client: SaslClient = await in_thread(logins.client, host)
            return client

        return LoginSettings(mechanism, None, new_login)
    try:
        if module.class_name != kind.class_name:
            raise JaasError(f"{mechanism} needs {kind.class_name}, not {module.class_name}")
        user, password = module.require("username"), module.require("password")
    except JaasError as error:
        raise settings.refusal(JAAS, f"{error}, with which this broker logs in to others") from None
    by_token = module.get("tokenauth").lower() == "true"

    async def new_client(_: str) -> SaslClient:
        return password_client(mechanism, user, password, by_token=by_token)

    return LoginSettings(mechanism, user, new_client)


def login_module(settings: ListenerSettings) -> LoginModule:
    """The login module of a listener and mechanism. Errors: ConfigError."""
    text = settings.own(JAAS)
    if text is None:
        name = next(settings.names(JAAS))
        raise settings.refusal(JAAS, f"{name} must name the user that this broker logs in as")
    try:
        return parse_jaas_config(text)
    except JaasError as error:
        raise settings.refusal(JAAS, str(error)) from None


def missing_super_user(config: BrokerConfig, login: BrokerLogin | None) -> str | None:
    """A warning for operators if this broker's login is not a super user; None if no warning is needed."""
    if login is None or login.user is None or not config.has_authorizer:
        return None
    principal = f"User:{login.user}"
    if principal in config.super_users:
        return None
    return (
        f"super.users does not name {principal}, the user that this broker logs in as: other brokers refuse its"
        f" requests unless an ACL allows {principal} the operation ClusterAction on the cluster"
    )
