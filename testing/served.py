"""`kwire serve --control`: a broker over the seams of kwire.testing, for tests that are not in this process.

The broker runs on a thread with a loop whose time is commanded. The control port is served by the loop of the main thread, so it answers
whatever the broker's time does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import signal
from collections.abc import Mapping
from pathlib import Path

from kwire.server.clock import SystemClock
from kwire.server.config import BrokerConfig, ConfigError
from kwire.server.executor import Executor
from kwire.server.http.hosts import AllowedHosts
from kwire.server.http.listener import HttpListener
from kwire.server.metadata.endpoint import WILDCARDS, Endpoint
from kwire.server.net.limits import NetLimits
from kwire.server.net.sockets import SocketNetwork
from kwire.server.run import say_ready

from .control import Control
from .served_broker import ServedBroker
from .settings import with_defaults

logger = logging.getLogger("kwire.server.control")

LOOPBACK = ("localhost", "127.0.0.1", "::1")
TOKEN_VARIABLE = "KWIRE_CONTROL_TOKEN"


def run(properties: Mapping[str, str], address: tuple[str, int], file: str | None) -> int:
    """Serve a broker and its control port until SIGTERM or SIGINT; return the exit status.

    Shape: prints `kwire ready HOST:PORT` when both can be used. `file` is where the address of the port and the token are written, for as
    long as they are valid. The token is in the environment as KWIRE_CONTROL_TOKEN, or else made anew.
    """
    return asyncio.run(_run(properties, Endpoint("CONTROL", *address), file))


async def _run(properties: Mapping[str, str], endpoint: Endpoint, file: str | None) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        config = BrokerConfig(with_defaults(properties))
        refuse_zookeeper(config)
        if file is not None:
            forget(file)  # of a broker that was killed
        broker = ServedBroker(properties)
        await asyncio.to_thread(broker.start)
    except (ConfigError, ValueError, OSError) as error:
        said = error.explain() if isinstance(error, ConfigError) else str(error)
        logger.error("cannot start: %s", said)
        return 1
    executor = Executor()
    token = os.environ.get(TOKEN_VARIABLE) or secrets.token_urlsafe(24)
    control = Control(broker, token)
    try:
        listener = open_control(config, endpoint, control, executor)
        try:
            tell(endpoint._replace(port=listener.port), token, broker.bootstrap_servers, file)
            say_ready(f"kwire ready {broker.bootstrap_servers}")
            await stopping.wait()
        finally:
            await listener.close()
            if file is not None:
                forget(file, token)
    except OSError as error:
        logger.error("cannot start: %s", error)
        return 1
    finally:
        control.close()
        await asyncio.to_thread(broker.stop)
        executor.close()
    logger.info("stopped")
    return 0


def refuse_zookeeper(config: BrokerConfig) -> None:
    """Errors: ConfigError for a broker whose metadata are in ZooKeeper: its sessions cannot be commanded."""
    if config.zookeeper_connect:
        raise ConfigError("--control is for a broker alone: --zookeeper '' uses the embedded store")


def open_control(
    config: BrokerConfig, endpoint: Endpoint, control: Control, executor: Executor
) -> HttpListener:
    """Serve the control port. Errors: OSError."""
    acceptor = SocketNetwork(executor).listen(endpoint, NetLimits())
    hosts = AllowedHosts([endpoint.host, *config.get_list("kwire.http.hosts")])
    listener = HttpListener(acceptor, hosts, SystemClock())
    listener.routes["/v1/"] = control.route
    listener.start()
    return listener


def tell(endpoint: Endpoint, token: str, bootstrap_servers: str, file: str | None) -> None:
    """Log where the port is, and write it to a file that only this user can read. Errors: OSError."""
    shown = endpoint._replace(host="localhost") if endpoint.host in WILDCARDS else endpoint
    url = f"http://{shown.address}"
    if endpoint.host not in LOOPBACK:
        logger.warning("The control port can be reached from other machines")
    if file is None and not os.environ.get(TOKEN_VARIABLE):
        logger.info("Control port at %s, token %s", url, token)
        return
    logger.info("Control port at %s", url)
    if file is not None:
        found = {"url": url, "token": token, "bootstrap_servers": bootstrap_servers}
        unfinished = Path(f"{file}.{os.getpid()}")
        with os.fdopen(
            os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w"
        ) as out:
            out.write(json.dumps(found) + "\n")
        unfinished.replace(file)


def forget(file: str, token: str = "") -> None:
    """Remove the file with a port's address and this token; of any token without one. Errors: OSError."""
    with contextlib.suppress(FileNotFoundError):
        if token in Path(file).read_text(encoding="utf-8", errors="replace"):
            Path(file).unlink()
