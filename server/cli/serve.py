"""`kwire serve`: combine the settings of file and command line, and run a broker with them."""

from __future__ import annotations

import logging
import os
import sys
from argparse import ArgumentParser, Namespace
from importlib import import_module
from pathlib import Path

from ..config import BrokerConfig, ConfigError
from ..config.broker_config import unknown_keys
from ..config.endpoints import parse_host_port
from ..config.jaas_file import named_file, settings_of
from ..config.properties import PropertiesError, read_properties
from ..config.tables import nearest
from ..event_loop import said_at_start
from ..metadata.endpoint import SECURITY_PROTOCOLS, WILDCARDS, Endpoint
from .client import whole_number
from .log_output import configure_logging

logger = logging.getLogger(__name__)

DEFAULT_DATA_DIR = "kwire-data"
#: The default address of --console without --http.
CONSOLE_ADDRESS = "localhost:9644"

#: The settings of a broker without a --config file. Apache Kafka ships a file with the same lines, because its built-in
#: defaults need three brokers. The broker listens only on this machine, since clients need no password.
WITHOUT_FILE = {
    "listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": DEFAULT_DATA_DIR,
    "group.initial.rebalance.delay.ms": "0",
}
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire serve`."""
    add = parser.add_argument
    add("--config", metavar="FILE", help="an Apache Kafka configuration file (server.properties)")
    add(
        "--data-dir",
        metavar="DIR",
        help=f"where topics are stored (log.dirs; default ./{DEFAULT_DATA_DIR})",
    )
    add(
        "--listen",
        metavar="[PROTOCOL://]HOST:PORT",
        help="address to listen on; :PORT for every interface (default localhost:9092); "
        "PROTOCOL is PLAINTEXT (default), SSL, SASL_PLAINTEXT or SASL_SSL",
    )
    add(
        "--advertise",
        metavar="HOST:PORT",
        help="address given to clients, if their connections are redirected (containers, tunnels)",
    )
    add(
        "--zookeeper",
        metavar="HOSTS",
        help="ZooKeeper ensemble, as host:port,.../chroot; without it, or with '', the broker uses its embedded store",
    )
    add("--node-id", metavar="N", help="id of this broker (broker.id)")
    add(
        "--workers",
        metavar="N",
        type=whole_number,
        help="run N brokers, which use up to N cores. Ids and ports count up from the given ones; each broker has its own folder in "
        "the data directory. They share a metadata store, which this command serves unless --zookeeper is given",
    )
    add(
        "--http",
        metavar="HOST:PORT",
        help="serve metrics and health checks over HTTP; :PORT for every interface (default: nothing is served)",
    )
    add(
        "--console",
        action="store_true",
        help=f"serve the console, pages for a browser (pip install 'kwire[console]'), at {CONSOLE_ADDRESS} or the address given with --http",
    )
    add(
        "--console-write",
        action="store_true",
        help="allow changes in the console, to users who enter the token that the broker logs when it starts",
    )
    add(
        "--control",
        metavar="HOST:PORT",
        help="for tests: serve an HTTP port that controls this broker's time and failures; port 0 uses a free one. "
        "Data is temporary unless --data-dir or --config gives a directory, and is not flushed to disk",
    )
    add(
        "--control-file",
        metavar="FILE",
        help="write the address and token of the control port to this file, which only this user can read; "
        "without it, they are logged. The environment variable KWIRE_CONTROL_TOKEN sets the token",
    )
    add(
        "--log-file",
        metavar="FILE",
        help="append the log to this file (default: standard error); SIGHUP reopens it",
    )
    add(
        "--log-format",
        choices=("text", "json"),
        help="format of the log (default text)",
    )
    add(
        "--log-level",
        type=str.upper,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        help="lowest level to log (default INFO); DEBUG logs each request",
    )
    add(
        "-o",
        "--override",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any other setting of Apache Kafka; repeatable",
    )


def run(options: Namespace) -> int:
    """Run until stopped."""
    try:
        properties = static_properties(options)
        config = BrokerConfig(properties)
        control = control_address(options)
        plan = None
        if options.workers is not None:
            from .workers import plan_of

            plan = plan_of(options, properties, config)
        elif os.path.isdir(Path(config.log_dirs[0], "worker-0")):  # noqa: PTH112 - False if it may not be read
            from .workers import check_directory

            check_directory(Path(config.log_dirs[0]), None)
    except ConfigError as error:
        print(f"kwire: {error.explain()}", file=sys.stderr)
        return 2
    except PropertiesError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"kwire: {error.filename or options.config}: {error.strerror}", file=sys.stderr)
        return 2
    # Workers have their own files.
    file = config.get_str("kwire.log.file") if plan is None else ""
    try:
        configure_logging(
            config.get_str("kwire.log.format"), config.get_str("kwire.log.level"), file=file
        )
    except OSError as error:
        print(f"kwire: {file}: {error.strerror}", file=sys.stderr)
        return 2
    logger.info("kwire on %s", said_at_start())
    if plan is not None:
        from .workers import run as run_workers

        return run_workers(plan)
    from .. import asyncio_without_ssl  # noqa: F401, I001 - first
    from ..run import CHILD_OF, run as run_broker

    if control is not None and not {"log.dirs", "log.dir"} & set(properties):
        logger.info("Data in a temporary directory, which is removed at the end")
    else:
        logger.info("Data in %s", ", ".join(str(Path(path).absolute()) for path in config.log_dirs))
    if servers := config.get_optional_str("zookeeper.connect"):
        from_file = options.zookeeper is None and CHILD_OF not in os.environ
        hint = "; --zookeeper '' uses the embedded store" if from_file else ""
        logger.info("Cluster metadata in ZooKeeper at %s%s", servers, hint)
    for sentence in config.notices():
        logger.warning("%s", sentence)
    if control is not None:
        # By name, because no other part of the server knows about test tools.
        served = import_module("kwire.testing.served")
        code: int = served.run(properties, control, options.control_file)
        return code
    return run_broker(config)


def control_address(options: Namespace) -> tuple[str, int] | None:
    """The address of the control port; None without one. Errors: ConfigError."""
    if options.control is None:
        if options.control_file is not None:
            raise ConfigError("--control-file needs --control")
        return None
    return parse_host_port(options.control, "--control")


def static_properties(options: Namespace) -> dict[str, str]:
    """All settings by Kafka's names; -o overrides the named options, which override the file.

    Errors: ConfigError, PropertiesError, OSError for a file that cannot be read.
    """
    given = option_properties(options)
    given |= override_properties(options.overrides)
    properties = read_properties(options.config) if options.config else dict(WITHOUT_FILE)
    if options.control is not None and not options.config:
        del properties["log.dirs"]
    if not options.config and "zookeeper.connect" not in given:
        properties |= ALONE
    if "log.dirs" in given:
        properties.pop("log.dir", None)
    elif "log.dir" in given:
        properties.pop("log.dirs", None)
    if "broker.id" in given or "node.id" in given:
        properties.pop("broker.id", None)
        properties.pop("node.id", None)
    properties |= given
    if options.console or options.console_write:
        properties.setdefault("kwire.http.listener", CONSOLE_ADDRESS)
    return properties | jaas_properties(properties)


def jaas_properties(properties: dict[str, str]) -> dict[str, str]:
    """The settings in a JAAS file, if there is one. Errors: ConfigError, also for a file that cannot be read."""
    path = named_file(properties, os.environ)
    if path is None:
        return {}
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = f"cannot be read: {getattr(error, 'strerror', None) or 'not a text file'}"
        raise ConfigError(f"{path}: {reason}", "kwire.jaas.file", path, reason) from None
    return settings_of(text, path, properties)


def option_properties(options: Namespace) -> dict[str, str]:
    """The settings made by the named options."""
    given = {
        "log.dirs": options.data_dir,
        "zookeeper.connect": options.zookeeper,
        "broker.id": options.node_id,
        "kwire.http.listener": options.http,
        "kwire.log.file": options.log_file,
        "kwire.log.format": options.log_format,
        "kwire.log.level": options.log_level,
    }
    properties = {name: value for name, value in given.items() if value is not None}
    if options.console or options.console_write:
        properties["kwire.console.enable"] = "true"
        properties["kwire.console.write"] = str(options.console_write).lower()
    protocol = "PLAINTEXT"
    if options.listen is not None:
        before, named, address = options.listen.rpartition("://")
        if named:
            protocol = before.upper()
            if protocol not in SECURITY_PROTOCOLS:
                raise ConfigError(
                    f"--listen {options.listen}: {before} is not one of {', '.join(SECURITY_PROTOCOLS)}"
                )
            properties["security.inter.broker.protocol"] = protocol
        host, port = parse_host_port(address, "--listen")
        properties["listeners"] = str(Endpoint(protocol, host, port))
    if options.advertise is not None:
        host, port = parse_host_port(options.advertise, "--advertise")
        if host in WILDCARDS:
            raise ConfigError(
                f"--advertise {options.advertise}: give the host that clients should connect to"
            )
        properties["advertised.listeners"] = str(Endpoint(protocol, host, port))
    return properties


def override_properties(overrides: list[str]) -> dict[str, str]:
    """The settings made by -o. Errors: ConfigError, also for an unknown key."""
    properties = {}
    for text in overrides:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"-o {text}: not KEY=VALUE")
        if unknown_keys([name]):
            guess = nearest(name)
            hint = f"; the nearest known one is {guess}" if guess else ""
            raise ConfigError(
                f"-o {name}=...: {name} is not a config of Apache Kafka or kwire{hint}"
            )
        properties[name] = value
    return properties
