"""`kwire serve --workers N`: N brokers on one machine under one command, for as many cores."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import BrokerConfig, ConfigError
from ..log.meta_properties import META_PROPERTIES
from .cluster_processes import package, run_processes

if TYPE_CHECKING:
    from ..coordination.zookeeper_server.server import ServerSettings

logger = logging.getLogger(__name__)

FOLDER = "worker-"
#: The store of workers without ZooKeeper, only for this machine; each start has another port.
STORE_LISTEN = "127.0.0.1:0"
MAX_WORKERS = 256

#: Settings that are addresses, whose ports increase from worker to worker.
ADDRESSES = ("listeners", "advertised.listeners", "kwire.http.listener")
#: Settings that every worker gets unchanged, in addition to those that differ between workers.
SHARED = (
    "security.inter.broker.protocol",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The workers to run.

    Shape: `properties` are those that a single broker would have; `arguments` are for every `kwire serve`, before the
    overrides for each worker; `store` is None if `zookeeper` names an ensemble.
    """

    count: int
    properties: Mapping[str, str]
    arguments: tuple[str, ...]
    data_dir: Path
    zookeeper: str | None
    store: ServerSettings | None
    prefix_logs: bool
    machine: str
    noun: str = "worker"
    restarts: bool = True

    @property
    def ids(self) -> range:
        """The ids of the brokers."""
        first = first_id(self.properties)
        return range(first, first + self.count)

    def command(self, broker_id: int, zookeeper: str, address: str | None) -> list[str]:
        """The command line of one worker; a restarted worker gets its previous address."""
        number = broker_id - self.ids.start
        overrides = worker_properties(self.properties, number, zookeeper, self.machine)
        if address is not None and "," not in overrides["listeners"]:
            overrides["listeners"] = f"{overrides['listeners'].rpartition('://')[0]}://{address}"
        words = [word for item in overrides.items() for word in ("-o", "=".join(item))]
        return [sys.executable, "-m", package(), "serve", *self.arguments, *words]


def first_id(properties: Mapping[str, str]) -> int:
    """The id of the first worker. Errors: ConfigError."""
    given = properties.get("broker.id", properties.get("node.id", "0"))
    try:
        return max(0, int(given))
    except ValueError:
        raise ConfigError(f"broker.id {given}: not a number", "broker.id", given) from None


def worker_properties(
    properties: Mapping[str, str], number: int, zookeeper: str, machine: str
) -> dict[str, str]:
    """The settings of one worker that differ from those of a single broker. Errors: ConfigError."""
    own = {name: properties[name] for name in SHARED if name in properties}
    own |= {name: moved(properties[name], number) for name in ADDRESSES if name in properties}
    if "kwire.log.file" in properties:
        own["kwire.log.file"] = f"{properties['kwire.log.file']}.{FOLDER}{number}"
    return {
        **own,
        "broker.id": str(first_id(properties) + number),
        "broker.rack": properties.get("broker.rack", machine),
        "log.dirs": ",".join(f"{path}/{FOLDER}{number}" for path in log_dirs(properties)),
        "zookeeper.connect": zookeeper,
    }


def log_dirs(properties: Mapping[str, str]) -> list[str]:
    """The directories in which each worker has its own."""
    text = properties.get("log.dirs") or properties["log.dir"]
    return [part.strip() for part in text.split(",") if part.strip()]


def moved(addresses: str, by: int) -> str:
    """The addresses with their ports increased; port 0, any free port, stays. Errors: ConfigError."""

    def later(match: re.Match[str]) -> str:
        port = int(match[1])
        if port and port + by > 65535:
            raise ConfigError(f"{addresses}: there are no {by} ports above {port}")
        return f":{port + by if port else 0}"

    return re.sub(r":(\d+)(?=\s*(?:,|$))", later, addresses)


def check_ports(properties: Mapping[str, str], count: int) -> None:
    """Refuse settings in which two addresses would be the same. Errors: ConfigError."""
    taken: dict[int, str] = {}
    for name in ("listeners", "kwire.http.listener"):
        for part in filter(None, properties.get(name, "").split(",")):
            for number in range(count):
                port = int(moved(part.strip(), number).rpartition(":")[2])
                if port and port in taken:
                    raise ConfigError(
                        f"--workers {count}: the ports of the workers count up, and {port} would belong to both"
                        f" {taken[port]} and {part.strip()}; choose ports that are {count} or more apart"
                    )
                taken[port] = part.strip()


def check_directory(path: Path, count: int | None) -> None:
    """Refuse a directory of which a part would not be served; `count` is None for a single broker.

    Errors: ConfigError.
    """
    if count is not None and path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: this is a file, where the workers' folders should be")
    there = sorted(
        int(entry.name.removeprefix(FOLDER))
        for entry in path.glob(f"{FOLDER}[0-9]*")
        if (entry / META_PROPERTIES).exists()
    )
    alone = (path / META_PROPERTIES).exists()
    if count is None and there and not alone:
        raise ConfigError(
            f"{path}: this folder holds the logs of {there[-1] + 1} workers: start with --workers {there[-1] + 1}"
        )
    if count is not None and alone:
        raise ConfigError(
            f"{path}: this folder holds the logs of a single broker, which workers would not find, since each has its"
            " own folder below it; choose another one"
        )
    if count is not None and there and there[-1] >= count:
        raise ConfigError(
            f"{path}: this folder holds the logs of {there[-1] + 1} workers, so that {count} would not serve all of"
            f" them; start with --workers {there[-1] + 1} or more"
        )


def plan_of(options: Namespace, properties: Mapping[str, str], config: BrokerConfig) -> WorkerPlan:
    """The plan for the options, with the settings of a single broker. Errors: ConfigError."""
    count: int = options.workers
    if not 1 <= count <= MAX_WORKERS:
        raise ConfigError(f"--workers {count}: not between 1 and {MAX_WORKERS}")
    if options.control is not None:
        raise ConfigError("--control: commands one broker, and cannot be combined with --workers")
    check_ports(properties, count)
    for number in range(count):
        worker_properties(properties, number, "", "")
    base = Path(log_dirs(properties)[0])
    check_directory(base, count)
    zookeeper = config.get_optional_str("zookeeper.connect")
    store = None
    if not zookeeper:
        from .zookeeper import settings_for_brokers

        store = settings_for_brokers(STORE_LISTEN, count)
    return WorkerPlan(
        count=count,
        properties=properties,
        arguments=tuple(shared_arguments(options)),
        data_dir=Path(config.metadata_dir if properties.get("metadata.log.dir") else base),
        zookeeper=zookeeper or None,
        store=store,
        prefix_logs=config.get_str("kwire.log.format") == "text",
        machine=socket.gethostname(),
    )


def shared_arguments(options: Namespace) -> list[str]:
    """The options that are passed to each worker unchanged."""
    arguments = []
    for name in ("config", "log_format", "log_level"):
        if (value := getattr(options, name)) is not None:
            arguments += [f"--{name.replace('_', '-')}", value]
    arguments += [
        f"--{name.replace('_', '-')}"
        for name in ("console", "console_write")
        if getattr(options, name)
    ]
    return arguments + [word for text in options.overrides for word in ("-o", text)]


def run(plan: WorkerPlan) -> int:
    """Run the workers until stopped: 0 after a clean stop, 1 if a worker could not be started or stopped."""
    from ..coordination.store import StoreClosed

    try:
        plan.data_dir.mkdir(parents=True, exist_ok=True)
        return asyncio.run(run_processes(plan))
    except (StoreClosed, OSError) as error:
        logger.error("cannot start: %s", error)
        return 1
