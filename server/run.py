"""Runs a broker as a process: signals, the ready line, exit status."""

from __future__ import annotations

import asyncio
import atexit
import errno
import gc
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from .config import ConfigError
from .coordination.cluster import BrokerIdInUse
from .coordination.paths import MalformedNode
from .coordination.store import StoreError
from .event_loop import uses_uvloop
from .log.log_directory import LogDirectoryError
from .log.meta_properties import CorruptMetaProperties
from .streams import StreamFailed
from .watchdog import Watchdog

if TYPE_CHECKING:
    from .broker import Broker
    from .config import BrokerConfig

logger = logging.getLogger(__name__)

#: The number of new objects that start a collection of the youngest generation, and the numbers of collections of a
#: generation that start one of the next. A collection of 10,000 objects takes 1 to 4 ms; one of the second generation
#: examines up to 50,000. The watchdog starts full collections, and keeps them small.
GC_THRESHOLDS = (10_000, 4, 1_000_000)

READY_LINES = "KWIRE_READY_LINES"
#: The environment variable with the word for this process, worker or broker, if another command has started it.
CHILD_OF = "KWIRE_CHILD"

#: When memory that only the start needed is released, after the first requests of waiting clients.
TRIM_AFTER_S = 1.0

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
#: The number of largest partitions that are named when a disk is full.
LARGEST = 3
MIB = 1024 * 1024

#: A signal this soon after the first counts as the same one: a terminal, `timeout` and service managers send it to the
#: process and also to its group.
AGAIN_S = 0.5


def run(config: BrokerConfig) -> int:
    """Run one broker until SIGTERM or SIGINT; return the exit status."""
    from .broker import (
        Broker,  # the largest import; `kwire cluster` needs only the functions below
    )

    raise_descriptor_limit()  # before the file layer takes its share
    return run_until_stopped(Broker(config))


def run_until_stopped(broker: Broker) -> int:
    """Start the broker, print `kwire ready HOST:PORT`, and stop it on SIGTERM, SIGINT or the end of its terminal.

    Without a terminal, SIGHUP makes it reopen its log file and read its certificates again. A service manager that
    requests it is notified when the broker is ready and when it stops (sd_notify).

    Shape: returns 0 after a clean stop, 1 if the broker could not start or continue. A second signal at least AGAIN_S
    after the first ends the process immediately.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    watchdog = broker.watchdog = Watchdog(broker.config.get_int("kwire.long.turn.ms"))
    new_loop = watchdog.new_uvloop if uses_uvloop() else watchdog.new_loop
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(_run(broker))
    finally:
        atexit.register(ignore_signals)


def ignore_signals() -> None:
    """Let no signal change the exit status from now on: the interpreter ends, and resets its handlers."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def raise_descriptor_limit() -> None:
    """Raise the limit of open files to the hard limit.

    Partitions and connections both need descriptors, and the usual soft limit is 1024.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:  # macOS refuses more than its kernel supports
            logger.warning("cannot raise the limit of open files from %d: %s", soft, error)


def has_terminal() -> bool:
    """Whether the process was started from a terminal, which sends SIGHUP when it is closed."""
    try:
        return os.isatty(0)
    except OSError:  # no standard input
        return False


def say_ready(line: str) -> None:
    """Print the line; without a reader of standard output, the broker still serves clients.

    Shape: the content of the environment variable KWIRE_READY_LINES is printed after it, for programs that wait for the
    output of another broker.
    """
    more = os.environ.get(READY_LINES)
    try:
        print(f"{line}\n{more}" if more else line, flush=True)
    except (OSError, StreamFailed) as error:
        logger.warning("cannot write %r to standard output: %s", line, error)
        sys.stdout = None  # otherwise Python would try to flush it again at exit


def trim_memory() -> None:
    """Release free memory to the system, if the C library supports that (glibc)."""
    try:
        from ctypes import CDLL

        CDLL(None).malloc_trim(0)
    except (ImportError, OSError, AttributeError):
        logger.debug("free memory is not given back", exc_info=True)


def reload(broker: Broker) -> None:
    """Reopen log files, which may have been renamed, and read certificates again."""
    for handler in logging.getLogger().handlers:
        reopen = getattr(handler, "reopen", None)
        if reopen is not None:
            reopen()
    logger.info("SIGHUP: reopening the log file and reading the certificates again")
    if broker.tls is not None:
        broker.tls.reload()


def notify_manager(message: str) -> None:
    """Notify the service manager, if there is one. Source: sd_notify(3)."""
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.sendto(message.encode(), address)
    except OSError as error:
        logger.warning("cannot notify the service manager at %s: %s", name, error)


def what_failed(error: Exception) -> str:
    """The text of an error at startup, without the number of a system error."""
    if isinstance(error, ConfigError):
        return error.explain()
    if isinstance(error, MalformedNode):
        return f"the cluster's metadata is damaged at {error}"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def what_helps(error: Exception, config: BrokerConfig, child: str | None = None) -> str:
    """A hint about how to fix an error at startup, or an empty string.

    Shape: `child` is worker or broker if a command has started this process with others, and the user gave it the options.
    """
    number = getattr(error, "errno", None)
    full = number in DISK_FULL or "disk is full" in str(error)
    if full:
        own = config.metadata_dir
        paths = [own] if isinstance(error, StoreError) else dict.fromkeys([*config.log_dirs, own])
        return f"; {'; '.join(room_on(path) for path in paths)}"
    if number == errno.EADDRINUSE:
        option, endpoint, http = "--listen", config.listeners[0], config.http_listener
        if http is not None and f":{http.port}:" in str(error):
            option, endpoint = "--http", http
        if child is not None:
            return f"; each {child} has the next port after that of the first {child} ({option} HOST:PORT): choose another one"
        free = free_port_after(endpoint.port)
        return "" if free is None else f"; port {free} is free: {option} {endpoint.host}:{free}"
    if isinstance(error, StoreError) and config.zookeeper_connect and child is None:
        return "; without ZooKeeper, kwire keeps the metadata itself: --zookeeper ''"
    return ""


def room_on(path: str) -> str:
    """The free space on a directory's disk, and the largest items in the directory."""
    try:
        disk = os.statvfs(path)
        free = disk.f_bavail * disk.f_frsize
        sizes = {
            entry.name: sum(file.stat().st_size for file in os.scandir(entry) if file.is_file())
            for entry in os.scandir(path)
            if entry.is_dir()
        }
    except OSError as error:
        return f"{path}: {error.strerror}"
    largest = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST]
    said = f"{path} has {free / MIB:.1f} MiB free"
    deleted = sum(size for name, size in sizes.items() if name.endswith("-delete"))
    if largest:
        names = ", ".join(f"{name} ({sizes[name] / MIB:.1f} MiB)" for name in largest)
        said += f"; the largest here are {names}"
    if deleted:
        said += f"; folders that end in -delete may be removed ({deleted / MIB:.1f} MiB)"
    return f"{said}; free room on this disk first, from files that are not kwire's"


def free_port_after(port: int) -> int | None:
    """The next port without a listener; None if there is none nearby."""
    for candidate in range(port + 1, min(port + 100, 65536)):
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("", candidate))
            except OSError:
                continue
            return candidate
    return None


async def _run(broker: Broker) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()

    told_at = 0.0

    def stop(number: int) -> None:
        nonlocal told_at
        if stopping.is_set():
            if loop.time() - told_at < AGAIN_S:
                return
            logger.error("%s again: ending at once", signal.Signals(number).name)
            logging.shutdown()
            os._exit(128 + number)
        logger.info("%s: stopping", signal.Signals(number).name)
        told_at = loop.time()
        notify_manager("STOPPING=1")
        stopping.set()

    def received(number: int, _: object) -> None:
        if loop.is_closed():
            return
        if number == signal.SIGHUP and not has_terminal():
            loop.call_soon_threadsafe(reload, broker)
        else:
            loop.call_soon_threadsafe(stop, number)

    for number in STOP_SIGNALS:
        # nohup makes a process ignore SIGHUP, so that it outlives its terminal; a child has none, and ignored it until now.
        is_told = signal.getsignal(number) is not signal.SIG_IGN or CHILD_OF in os.environ
        if number != signal.SIGHUP or is_told:
            # Not a handler of the loop, because the signal would get its default effect again when the loop ends.
            signal.signal(number, received)
    told = loop.create_task(stopping.wait())
    starting = loop.create_task(broker.start())
    try:
        # A store that does not answer must not prevent the broker from stopping.
        await asyncio.wait([starting, told], return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
            return 0
        starting.result()
        say_ready(f"kwire ready {broker.address}")
        notify_manager(f"READY=1\nSTATUS=serving {broker.address}")
        gc.freeze()  # existing objects stay, so collections need not examine them again
        assert broker.failed is not None and broker.watchdog is not None
        broker.watchdog.start()
        loop.call_later(TRIM_AFTER_S, trim_memory)
        either: list[asyncio.Future[Any]] = [told, broker.failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if broker.failed.done():
            logger.error("cannot continue: %s", broker.failed.result())
            return 1
    except (
        LogDirectoryError,
        CorruptMetaProperties,
        BrokerIdInUse,
        StoreError,
        MalformedNode,
        ConfigError,
        OSError,
    ) as error:
        logger.error(
            "cannot start: %s%s",
            what_failed(error),
            what_helps(error, broker.config, os.environ.get(CHILD_OF)),
        )
        return 1
    finally:
        told.cancel()
        if broker.watchdog is not None:
            broker.watchdog.stop()
        await broker.stop()
    logger.info("stopped")
    return 0
