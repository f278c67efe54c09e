"""`kwire zookeeper`: the embedded store, served in ZooKeeper's client protocol."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config import ConfigError
from ..config.endpoints import parse_host_port
from .client import whole_number
from .log_output import configure_logging

if TYPE_CHECKING:
    from ..coordination.zookeeper_server.server import ServerSettings, ZooKeeperServer

logger = logging.getLogger(__name__)

DEFAULT_DATA_DIR = "kwire-data"
DEFAULT_LISTEN = "localhost:2181"
DEFAULT_CONNECTIONS = 60
#: Most objects are nodes that stay. With Python's thresholds, the collector takes half of the time of a transaction with
#: thousands of ops; and with these, it still finds what is left of connections.
GC_THRESHOLDS = (10_000, 4, 1_000)
NOTICE = (
    "Serves ZooKeeper's protocol from one process: its data is not replicated. "
    "It is meant for development and tests; a production cluster needs an ensemble of Apache ZooKeeper"
)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire zookeeper`."""
    add = parser.add_argument
    add(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"address to listen on; :PORT for every interface (default {DEFAULT_LISTEN})",
    )
    add(
        "--data-dir",
        metavar="DIR",
        default=DEFAULT_DATA_DIR,
        help=f"directory in which nodes are stored (default ./{DEFAULT_DATA_DIR})",
    )
    add(
        "--tick-ms",
        metavar="MS",
        type=whole_number,
        default=2000,
        help="length of a tick; session timeouts are between 2 and 20 ticks (default 2000)",
    )
    add(
        "--max-client-connections",
        metavar="N",
        type=int,
        default=DEFAULT_CONNECTIONS,
        help="connections accepted from one address; 0 for any number "
        f"(default {DEFAULT_CONNECTIONS})",
    )
    add(
        "--words",
        metavar="LIST",
        default="*",
        help="four-letter words to answer, separated by commas (default '*', all)",
    )
    add(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="format of the log on standard error (default text)",
    )
    add(
        "--log-level",
        type=str.upper,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        default="INFO",
        help="lowest level to log (default INFO)",
    )


def run(options: Namespace) -> int:
    """Serve until stopped: 0 after a clean stop, 1 if it could not start or failed."""
    from ..coordination.store import StoreClosed

    try:
        settings = settings_of(
            options.listen, options.tick_ms, options.words, options.max_client_connections
        )
    except ConfigError as error:
        print(f"kwire: {error.explain()}", file=sys.stderr)
        return 2
    configure_logging(options.log_format, options.log_level)
    data_dir = Path(options.data_dir)
    gc.set_threshold(*GC_THRESHOLDS)
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        return asyncio.run(serve(data_dir, settings))
    except (StoreClosed, OSError) as error:
        logger.error("cannot start: %s", error)
        return 1


def settings_of(
    listen: str, tick_ms: int, words: str, max_client_connections: int = DEFAULT_CONNECTIONS
) -> ServerSettings:
    """The settings from the options. Errors: ConfigError."""
    from ..coordination.zookeeper_server.machine import SessionTimeoutLimits
    from ..coordination.zookeeper_server.server import ServerSettings
    from ..coordination.zookeeper_server.words import WORDS

    host, port = parse_host_port(listen, "--listen")
    if tick_ms < 1:
        raise ConfigError(f"--tick-ms {tick_ms}: not a positive number of milliseconds")
    if max_client_connections < 0:
        raise ConfigError(
            f"--max-client-connections {max_client_connections}: not a number of connections"
        )
    chosen = frozenset(WORDS)
    if words.strip() != "*":
        chosen = frozenset(filter(None, map(str.strip, words.split(","))))
        if unknown := chosen - set(WORDS):
            raise ConfigError(
                f"--words {words}: {', '.join(sorted(unknown))} unknown; known are {', '.join(WORDS)}"
            )
    limits = SessionTimeoutLimits(2 * tick_ms, 20 * tick_ms)
    return ServerSettings(host, port, limits, chosen, max_client_connections)


def settings_for_brokers(listen: str, brokers: int) -> ServerSettings:
    """The settings of a server for brokers on this machine. Errors: ConfigError."""
    # A broker has one connection, and a second one while it replaces a lost one.
    return settings_of(listen, 2000, "*", DEFAULT_CONNECTIONS + 2 * brokers)


async def serve(data_dir: Path, settings: ServerSettings) -> int:
    """Open the store and serve it until a signal or a failure of the file."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stopping.set)
    server = await open_server(data_dir, settings)
    logger.warning("%s", NOTICE)
    try:
        print(f"kwire zookeeper ready {address_of(server)}", flush=True)
        told = loop.create_task(stopping.wait())
        either: list[asyncio.Future[Any]] = [told, server.failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
        if server.failed.done():
            logger.error("cannot continue: %s", server.failed.result())
            return 1
    finally:
        await server.close()
    logger.info("stopped")
    return 0


async def open_server(data_dir: Path, settings: ServerSettings) -> ZooKeeperServer:
    """Serve the store in a folder. Errors: StoreClosed, OSError."""
    from ..clock import SystemClock
    from ..coordination.store import EMBEDDED_STORE
    from ..coordination.zookeeper_server.server import ZooKeeperServer

    path = data_dir / EMBEDDED_STORE
    server = await ZooKeeperServer.open(path, SystemClock(), settings)
    logger.info(
        "Nodes in %s; %d sessions may resume", path.absolute(), len(server.machine.sessions)
    )
    return server


def address_of(server: ZooKeeperServer) -> str:
    """The address of the server for clients on this machine."""
    host = server.settings.host
    if host in ("", "0.0.0.0", "::"):
        host = "localhost"
    return f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
