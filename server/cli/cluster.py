"""`kwire cluster`: several brokers on this machine and their shared store; the state of any cluster."""

from __future__ import annotations

import asyncio
import logging
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ..config import ConfigError
from ..config.endpoints import parse_host_port
from ..config.properties import PropertiesError, read_properties
from ..log.meta_properties import META_PROPERTIES
from .client import add_bootstrap, whole_number
from .log_output import configure_logging
from .output import add_output

logger = logging.getLogger(__name__)

#: Differs from the default directory of `kwire serve`, whose logs a cluster's brokers would not find.
DEFAULT_DATA_DIR = "kwire-cluster"
DEFAULT_LISTEN = "localhost:9092"
DEFAULT_ZOOKEEPER_LISTEN = "localhost:2181"
DEFAULT_BROKERS = 3


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire cluster`."""
    add = parser.add_argument
    add(
        "verb",
        metavar="VERB",
        nargs="?",
        choices=("run", "describe", "health"),
        default="run",
        help="run (default): run several brokers on this machine; describe: show the brokers of a cluster; health: show what is"
        " wrong with a cluster (exit status 1 if anything is)",
    )
    add_bootstrap(parser)
    add_output(parser)
    add(
        "--brokers",
        metavar="N",
        type=whole_number,
        default=DEFAULT_BROKERS,
        help=f"number of brokers; their ids are 0 to N-1 (default {DEFAULT_BROKERS})",
    )
    add(
        "--listen",
        metavar="HOST:PORT",
        default=DEFAULT_LISTEN,
        help=f"address of broker 0; the others use the next ports; port 0 uses free ones (default {DEFAULT_LISTEN})",
    )
    add(
        "--data-dir",
        metavar="DIR",
        default=DEFAULT_DATA_DIR,
        help=f"directory with the store and a folder for each broker, broker-0 and so on (default ./{DEFAULT_DATA_DIR})",
    )
    add(
        "--zookeeper",
        metavar="HOSTS",
        help="ZooKeeper ensemble, as host:port,.../chroot; without it, this command serves its own store",
    )
    add(
        "--zookeeper-listen",
        metavar="HOST:PORT",
        default=DEFAULT_ZOOKEEPER_LISTEN,
        help="address of the command's own store, which speaks ZooKeeper's protocol "
        f"(default {DEFAULT_ZOOKEEPER_LISTEN})",
    )
    add(
        "--config",
        metavar="FILE",
        help="an Apache Kafka configuration file (server.properties) for all brokers",
    )
    add(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="format of the logs on standard error (default text)",
    )
    add(
        "--log-level",
        type=str.upper,
        choices=("DEBUG", "INFO", "WARNING", "ERROR"),
        default="INFO",
        help="lowest level to log (default INFO)",
    )
    add(
        "-o",
        "--override",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="any other setting of Apache Kafka, for all brokers; repeatable",
    )


def run(options: Namespace) -> int:
    """Run until stopped: 0 after a clean stop, 1 if a broker or the store failed; or describe a cluster."""
    if options.verb != "run":
        from . import cluster_state
        from .brokers import with_brokers

        verb = {"describe": cluster_state.describe, "health": cluster_state.health}[options.verb]
        return with_brokers(verb, options)
    from ..coordination.store import StoreClosed
    from ..run import what_failed
    from .cluster_processes import ClusterPlan, run_processes
    from .zookeeper import settings_for_brokers

    try:
        host, port = parse_host_port(options.listen, "--listen")
        check(options, port)
        store = (
            None
            if options.zookeeper is not None
            else settings_for_brokers(options.zookeeper_listen, options.brokers)
        )
        arguments = tuple(broker_arguments(options))
    except ConfigError as error:
        print(f"kwire: {error.explain()}", file=sys.stderr)
        return 2
    except PropertiesError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"kwire: {error.filename or options.config}: {error.strerror}", file=sys.stderr)
        return 2
    configure_logging(options.log_format, options.log_level)
    plan = ClusterPlan(
        brokers=options.brokers,
        host=host,
        port=port,
        data_dir=Path(options.data_dir),
        zookeeper=options.zookeeper,
        store=store,
        arguments=arguments,
        prefix_logs=options.log_format == "text",
    )
    try:
        plan.data_dir.mkdir(parents=True, exist_ok=True)
        return asyncio.run(run_processes(plan))
    except (StoreClosed, OSError) as error:
        logger.error("cannot start: %s", what_failed(error))
        return 1


def check(options: Namespace, port: int) -> None:
    """Refuse options that do not describe a valid cluster. Errors: ConfigError."""
    if options.brokers < 1:
        raise ConfigError(f"--brokers {options.brokers}: a cluster has at least one broker")
    if port and port + options.brokers - 1 > 65535:
        raise ConfigError(
            f"--listen {options.listen}: there are not {options.brokers} ports from there on"
        )
    if (Path(options.data_dir) / META_PROPERTIES).exists():
        raise ConfigError(
            f"--data-dir {options.data_dir}: this folder holds the logs of a single broker, which the brokers of a "
            "cluster would not find, since each has its own folder below it; choose another one"
        )
    if options.zookeeper == "":
        raise ConfigError("--zookeeper '': omit the option to have this command serve a store")


def broker_arguments(options: Namespace) -> list[str]:
    """The arguments of every `kwire serve`. Errors: OSError, PropertiesError for the file."""
    arguments = ["--log-format", options.log_format, "--log-level", options.log_level]
    overrides = list(options.overrides)
    given = {text.partition("=")[0].strip() for text in overrides}
    if options.config is not None:
        arguments += ["--config", options.config]
        given |= read_properties(options.config).keys()
    overrides += [
        f"{name}={value}"
        for name, value in internal_topics(options.brokers).items()
        if name not in given
    ]
    for text in overrides:
        arguments += ["-o", text]
    return arguments


def internal_topics(brokers: int) -> dict[str, int]:
    """Kafka's settings that require three brokers, reduced to the number of brokers."""
    return {
        "offsets.topic.replication.factor": min(brokers, 3),
        "transaction.state.log.replication.factor": min(brokers, 3),
        "transaction.state.log.min.isr": min(brokers, 2),
        "share.coordinator.state.topic.replication.factor": min(brokers, 3),
        "share.coordinator.state.topic.min.isr": min(brokers, 2),
    }
