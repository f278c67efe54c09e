"""The last phase: logs are opened, the broker takes its place in the cluster, and requests are answered."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import dataclass

from ..config import BrokerConfig
from ..log.log_config import LogConfig
from ..metadata.endpoint import WILDCARDS
from ..net.limits import ConnectionQuotas, NetLimits, descriptors_for_connections
from ..net.listener import Listener, frame_memory
from .opened import Opened
from .rooms import Rooms

logger = logging.getLogger(__name__)

CLEANER_START_S = 2.0
STOP_GRACE_S = 0.5


@dataclass(frozen=True, slots=True)
class Serving:
    """What clients reach. Shape: `quotas` count the connections of all listeners."""

    listeners: tuple[Listener, ...]
    quotas: ConnectionQuotas


async def serve(
    config: BrokerConfig, opened: Opened, rooms: Rooms, cleanup: AsyncExitStack
) -> Serving:
    """Come up until clients can be served, and have `cleanup` end it. Errors: as `open_world`."""
    clock = opened.seams.clock
    memory = frame_memory(opened.limits, clock)
    quotas = ConnectionQuotas(opened.limits, descriptors_for_connections())
    listeners = tuple(
        Listener(
            acceptor,
            endpoint,
            rooms.dispatcher,
            opened.limits,
            clock,
            memory=memory,
            quotas=quotas,
        )
        for acceptor, endpoint in zip(opened.acceptors, opened.endpoints, strict=True)
    )
    for listener in listeners:
        cleanup.push_async_callback(listener.close, STOP_GRACE_S)
    cleanup.callback(rooms.transaction_coordinator.close)
    cleanup.callback(rooms.group_coordinator.close)
    for listener in listeners:
        cleanup.callback(listener.stop_accepting)
    report_addresses(config, opened)
    await open_logs(config, opened, cleanup)
    cleanup.callback(config.subscribe(lambda changed: take_up(changed, config, rooms, quotas)))
    await rooms.controller.start(opened.kept_cluster_id)
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
    rooms.upkeep.start()
    return Serving(listeners, quotas)


async def open_logs(config: BrokerConfig, opened: Opened, cleanup: AsyncExitStack) -> None:
    """Read, and after an unclean stop mend, what is on disk; the loop stays awake."""
    logs, processes = opened.log_manager, None
    count = config.get_int("num.recovery.threads.per.data.dir")
    if count > 1:
        from ..log.recovery.process import RecoveryProcesses

        processes = RecoveryProcesses(count)
    plain = LogConfig.of(config, {})  # those of the topics are known later
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


def take_up(
    changed: frozenset[str], config: BrokerConfig, rooms: Rooms, quotas: ConnectionQuotas
) -> None:
    """Work by settings that were changed at run time."""
    if any(name.startswith("max.connections") for name in changed):
        quotas.limits = NetLimits.of(config)
    if "unclean.leader.election.enable" in changed:
        rooms.controller.settings.unclean_leader_election = config.get_bool(
            "unclean.leader.election.enable"
        )
        rooms.controller.settings_changed()


async def clean(config: BrokerConfig, opened: Opened) -> None:
    """Compact logs from time to time, until cancelled."""
    await asyncio.sleep(CLEANER_START_S)  # nothing of it is needed to come up
    from ..log.cleaner.task import CleanerTask

    seams = opened.seams
    cleaner = CleanerTask(config, opened.log_manager, seams.executor, seams.clock)
    try:
        await cleaner.run()
    finally:
        cleaner.close()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it has put away what it had."""
    task.cancel()
    await asyncio.wait([task])


def report_addresses(config: BrokerConfig, opened: Opened) -> None:
    """Say what clients are told where an address stands for all interfaces."""
    for endpoint in opened.endpoints:
        if endpoint.host not in WILDCARDS or config.advertised_listeners:
            continue
        if config.zookeeper_connect is not None:
            logger.info(
                "listening on every interface; clients and other brokers are told to come to %s:%d. "
                "Where they cannot, start with --advertise HOST:%d",
                socket.getfqdn(),
                endpoint.port,
                endpoint.port,
            )
        else:
            logger.info(
                "listening on every interface; clients are told the address they connected "
                "to. Where address or port is translated on the way (a container's published "
                "port, a tunnel to another port) start with --advertise HOST:%d",
                endpoint.port,
            )
