"""The coordination store that a command opens itself: an embedded one, or ZooKeeper with the login of a broker."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from ..config import BrokerConfig
from ..config.jaas_file import FILE, ZOOKEEPER_LOGIN
from ..config.properties import read_properties
from .serve import DEFAULT_DATA_DIR, jaas_properties, override_properties

if TYPE_CHECKING:
    from ..coordination.store import Store


#: Commands are interactive, unlike the start of a broker: this equals their time limit for brokers.
CONNECTION_TIMEOUT_MS = "10000"


class NoStore(Exception):
    """There is no store in the expected place."""


def add_broker_settings(parser: ArgumentParser, said: str) -> None:
    """The options for the settings of a broker, which determine the login and TLS at ZooKeeper."""
    parser.add_argument("--config", metavar="FILE", help=f"a broker's server.properties, {said}")
    parser.add_argument(
        "-o",
        "--override",
        dest="overrides",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of the broker, such as zookeeper.ssl.client.enable=true; repeatable",
    )


def broker_settings(options: Namespace) -> dict[str, str]:
    """The given settings. Errors: ConfigError, PropertiesError, OSError for a file that cannot be read."""
    properties = read_properties(options.config) if options.config else {}
    return properties | override_properties(options.overrides)


def choose_store(options: Namespace) -> None:
    """Set `zookeeper` or `data_dir` to the store of the broker's settings if the options name none.

    Errors: those of `broker_settings`.
    """
    if options.zookeeper is None and options.data_dir is None:
        settings = broker_settings(options)
        options.zookeeper = settings.get("zookeeper.connect") or None
        folders = settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_DATA_DIR
        options.data_dir = settings.get("metadata.log.dir") or folders.split(",")[0].strip()


def zookeeper_config(options: Namespace) -> BrokerConfig:
    """A broker's settings for ZooKeeper; others are ignored. Errors: those of `broker_settings`."""
    properties = {
        name: value
        for name, value in broker_settings(options).items()
        if name.startswith("zookeeper.") or name in (FILE, ZOOKEEPER_LOGIN)
    }
    properties["zookeeper.connect"] = options.zookeeper
    properties.setdefault("zookeeper.connection.timeout.ms", CONNECTION_TIMEOUT_MS)
    return BrokerConfig(properties | jaas_properties(properties))


async def open_store(options: Namespace, must_exist: bool) -> Store:
    """The store that the options name. Errors: NoStore, StoreError, and those of `broker_settings`."""
    if options.zookeeper is not None:
        from ..composition.zookeeper import connect_to_zookeeper

        return await connect_to_zookeeper(zookeeper_config(options), options.zookeeper)
    from ..clock import SystemClock
    from ..coordination.embedded import EmbeddedStore

    return await EmbeddedStore.open(embedded_path(options.data_dir, must_exist), SystemClock())


def embedded_path(data_dir: str, must_exist: bool) -> Path:
    """The file of an embedded store. Errors: NoStore."""
    from ..coordination.store import EMBEDDED_STORE

    path = Path(data_dir, EMBEDDED_STORE)
    if must_exist and not path.exists():
        raise NoStore(f"{path}: no store here; name its folder with --data-dir")
    return path
