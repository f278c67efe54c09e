"""The last phase: opens the logs, joins the cluster, and starts to answer requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from ..clock import Clock
from ..config import BrokerConfig
from ..descriptors import budget
from ..log.log_config import LogConfig
from ..metadata.endpoint import WILDCARDS
from ..metadata.image import BROKERS, EMPTY, USERS
from ..net.limits import ConnectionQuotas, NetLimits
from ..net.listener import Listener, frame_memory, output_memory
from ..net.rotation import Rotation
from ..net.session import Session
from ..quotas.connections import ConnectionRates
from .opened import Opened
from .rooms import Rooms

if TYPE_CHECKING:
    from ..coordination.tokens import TokenStore
    from ..handlers.login import SaslLogins
    from ..metadata.endpoint import Endpoint
    from ..security.sasl.scram import KnownUser

logger = logging.getLogger(__name__)

CLEANER_START_S = 2.0
STOP_GRACE_S = 0.5

CONNECTION_RATE = "max.connection.creation.rate"


@dataclass(frozen=True, slots=True)
class Serving:
    """The components that clients connect to. Shape: `quotas` count the connections of all listeners.

    `logins` are those of the SASL listeners, by listener; each counts its logins (`LoginCounts`).
    """

    listeners: tuple[Listener, ...]
    quotas: ConnectionQuotas
    logins: Mapping[str, SaslLogins]


async def serve(
    config: BrokerConfig,
    opened: Opened,
    rooms: Rooms,
    cleanup: AsyncExitStack,
    *,
    make_session: Callable[..., Session] = Session,
) -> Serving:
    """Start everything that serves clients, and register its stop with `cleanup`. Errors: as for `open_world`."""
    clock = opened.seams.clock
    memory = frame_memory(opened.limits, clock)
    rooms.replica_manager.appends.may_keep_requests = memory.may_be_kept
    output = output_memory(opened.limits, clock)
    rotation = Rotation()
    limit_connection_rates(config, rooms.connection_rates, clock.monotonic_ms())
    quotas = ConnectionQuotas(opened.limits, budget().connections, rooms.connection_rates)
    logins = {
        endpoint.listener: logins_of(endpoint, config, rooms)
        for endpoint in opened.endpoints
        if endpoint.has_logins
    }
    listeners = tuple(
        Listener(
            acceptor,
            endpoint,
            rooms.dispatcher,
            opened.limits,
            clock,
            memory=memory,
            output=output,
            rotation=rotation,
            quotas=quotas,
            logins=logins.get(endpoint.listener),
            make_session=make_session,
        )
        for acceptor, endpoint in zip(opened.acceptors, opened.endpoints, strict=True)
    )
    for listener in listeners:
        cleanup.push_async_callback(listener.close, STOP_GRACE_S)
    cleanup.callback(rooms.transaction_coordinator.close)
    cleanup.callback(rooms.share_coordinator.close)
    cleanup.callback(rooms.group_coordinator.close)
    for listener in listeners:
        cleanup.callback(listener.stop_accepting)
    report_addresses(config, opened)
    await open_logs(config, opened, cleanup)
    cleanup.callback(
        config.subscribe(lambda changed: take_up(changed, config, rooms, quotas, clock))
    )
    for each in logins.values():
        cleanup.callback(each.close)
        cleanup.callback(config.subscribe(each.take_up))
    if rooms.acls is not None:
        await rooms.acls.load()
        following = asyncio.create_task(rooms.acls.follow())
        cleanup.push_async_callback(end, following)
    if rooms.tokens is not None:
        await follow_tokens(config, rooms, rooms.tokens, cleanup)
    await rooms.controller.start(opened.kept_cluster_id)
    await encode_passwords_again(config, opened.node_id, rooms)
    if rooms.services.group_support is not None:
        # Before the listeners start: clients keep the versions that they are told when they connect.
        await rooms.services.group_support.learn(opened.cluster.broker_ids)
    for listener in listeners:
        listener.start()
    if rooms.clients is not None:
        rooms.clients.start(rooms.replica_manager)
    if rooms.peers is not None:
        cleanup.callback(rooms.peers.close)
        rooms.peers.start()
    if config.get_bool("log.cleaner.enable"):
        cleaning = asyncio.create_task(clean(config, opened))
        cleanup.push_async_callback(end, cleaning)
    cleanup.callback(rooms.upkeep.close)
    delay_ms = config.get_int("kwire.stray.log.delete.delay.ms")
    rooms.upkeep.on_retained = lambda: rooms.replica_manager.delete_strays(
        rooms.publisher.image, delay_ms
    )
    rooms.upkeep.start()
    return Serving(listeners, quotas, logins)


async def follow_tokens(
    config: BrokerConfig, rooms: Rooms, tokens: TokenStore, cleanup: AsyncExitStack
) -> None:
    """Read the delegation tokens, follow their changes, and remove expired tokens."""
    from ..coordination.tokens import sweep_regularly

    await tokens.load()
    interval_ms = config.get_int("delegation.token.expiry.check.interval.ms")
    for work in (
        tokens.follow(),
        sweep_regularly(tokens, interval_ms, lambda: rooms.controller.is_active),
    ):
        cleanup.push_async_callback(end, asyncio.create_task(work))


async def open_logs(config: BrokerConfig, opened: Opened, cleanup: AsyncExitStack) -> None:
    """Open the logs in a thread, and recover them after an unclean stop."""
    logs, processes = opened.log_manager, None
    count = config.get_int("num.recovery.threads.per.data.dir")
    if count > 1:
        from ..log.recovery.process import RecoveryProcesses

        processes = RecoveryProcesses(count)
    # The topics' own settings become known later.
    plain = LogConfig.of(config, config.topic_config({}))
    opening = opened.seams.executor.in_thread(
        logs.open_logs,
        lambda _: plain,
        opened.seams.clock.now_ms(),
        None if processes is None else processes.recover,
    )

    async def give_up() -> None:
        if not opening.done():
            logs.abandon_opening()
            if processes is not None:
                processes.close()
            await asyncio.wait([opening])

    cleanup.push_async_callback(give_up)
    await asyncio.shield(opening)


async def encode_passwords_again(config: BrokerConfig, node_id: int, rooms: Rooms) -> None:
    """Replace stored passwords that were encoded with password.encoder.old.secret."""
    if config["password.encoder.old.secret"] is None:
        return
    stored = rooms.controller.image.broker_config(node_id)
    if config.passwords.encode_again(stored) != stored:
        change = config.passwords.encode_again
        await rooms.controller.alter_config(BROKERS, str(node_id), change)
        logger.info("Passwords in the store are encoded with password.encoder.secret again")


def logins_of(endpoint: Endpoint, config: BrokerConfig, rooms: Rooms) -> SaslLogins:
    """The logins at a listener. Errors: ConfigError."""
    from ..coordination.paths import sanitize
    from ..handlers.login import SaslLogins
    from ..security.sasl.sources import LoginServices

    services = rooms.services

    in_thread = services.executor.in_thread

    def known_token(
        mechanism: str, token_id: str
    ) -> KnownUser | Awaitable[KnownUser | None] | None:
        if rooms.tokens is None:
            return None
        return rooms.tokens.tokens.user_of(mechanism, token_id, services.clock.now_ms(), in_thread)

    sources = LoginServices(
        user_configs=lambda: services.metadata().configs.get(USERS, EMPTY),
        sanitize=sanitize,
        token=known_token,
        clock=services.clock,
        warn=lambda text: logger.warning("listener %s: %s", endpoint.listener, text),
        in_thread=in_thread,
    )
    return SaslLogins(config.listener(endpoint.listener), sources, rooms.dispatcher, services.clock)


def take_up(
    changed: frozenset[str],
    config: BrokerConfig,
    rooms: Rooms,
    quotas: ConnectionQuotas,
    clock: Clock,
) -> None:
    """Apply settings that were changed at run time."""
    if any(name.endswith(CONNECTION_RATE) for name in changed):
        limit_connection_rates(config, rooms.connection_rates, clock.monotonic_ms())
    if any(name.startswith("max.connections") for name in changed):
        quotas.limits = NetLimits.of(config)
    if "unclean.leader.election.enable" in changed:
        allowed = config.get_bool("unclean.leader.election.enable")
        rooms.controller.reconfigure(unclean_leader_election=allowed)


def limit_connection_rates(config: BrokerConfig, rates: ConnectionRates, now_ms: int) -> None:
    """Apply the limits of the broker and of its listeners."""
    rates.limit_broker(config.get_int(CONNECTION_RATE), now_ms)
    for endpoint in config.listeners:
        rate = config.listener(endpoint.listener).get_int(CONNECTION_RATE)
        rates.limit_listener(endpoint.listener, rate, now_ms)


async def clean(config: BrokerConfig, opened: Opened) -> None:
    """Compact logs at intervals, until cancelled."""
    await asyncio.sleep(CLEANER_START_S)  # its imports must not slow down the start
    seams = opened.seams
    # In a thread, because the imports would take a turn of 10 ms.
    await seams.executor.in_thread(import_module, "..log.cleaner.task", __package__)
    from ..log.cleaner.task import CleanerTask

    cleaner = CleanerTask(config, opened.log_manager, seams.executor, seams.clock)
    try:
        await cleaner.run()
    finally:
        cleaner.close()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it has ended."""
    task.cancel()
    await asyncio.wait([task])


def report_addresses(config: BrokerConfig, opened: Opened) -> None:
    """Log the address that clients get, for each listener on all interfaces."""
    for endpoint in opened.endpoints:
        if endpoint.host not in WILDCARDS or config.advertised_listeners:
            continue
        if config.zookeeper_connect is not None or endpoint.is_encrypted:
            logger.info(
                "listening on every interface; clients and other brokers are told to connect to %s:%d. "
                "If they cannot reach it%s, start with --advertise HOST:%d",
                opened.host_name,
                endpoint.port,
                ", or the certificate has no such name" if endpoint.is_encrypted else "",
                endpoint.port,
            )
        else:
            logger.info(
                "listening on every interface; clients are told the address they connected "
                "to. If the address or port is translated on the way (a container's published "
                "port, a tunnel to another port), start with --advertise HOST:%d",
                endpoint.port,
            )
