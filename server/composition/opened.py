"""The first phase: opens or locks everything outside the process that the broker needs.

At its end, the log directories are locked, the store is open, the broker and cluster ids are known, and the listeners'
addresses are bound.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..clock import Clock
from ..config import BrokerConfig
from ..coordination import paths
from ..coordination.cluster import ClusterStore
from ..coordination.store import EMBEDDED_STORE
from ..executor import Executor
from ..log.file_layer import FileLayer
from ..log.log_directory import LogDirectory, MissingMetadata, NotImported
from ..log.log_manager import LogManager
from ..log.meta_properties import KRAFT_VERSION
from ..metadata.endpoint import WILDCARDS, Endpoint
from ..net.limits import NetLimits

if TYPE_CHECKING:
    from ..coordination.store import Store
    from ..log.meta_properties import MetaProperties
    from ..net.network import Acceptor, Network


#: The setting that lets a broker begin without the metadata of its logs.
MAY_BE_MISSING = "kwire.metadata.may.be.missing"


@dataclass(frozen=True, slots=True)
class Seams:
    """The interfaces through which a broker does I/O. Shape: without `store`, the settings choose it."""

    clock: Clock
    file_layer: FileLayer
    executor: Executor
    network: Network
    store: Store | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """The results of the first phase, and the ids of the broker and its cluster.

    Shape: `kept_cluster_id` is the cluster id in the log directories of a broker with the embedded store, used if the
    store has no cluster id yet; `endpoints` have the actual ports; `host_name` is the name of this machine for all of
    its addresses.
    """

    seams: Seams
    log_manager: LogManager
    store: Store
    cluster: ClusterStore
    node_id: int
    cluster_id: str
    kept_cluster_id: str | None
    limits: NetLimits
    endpoints: tuple[Endpoint, ...]
    acceptors: tuple[Acceptor, ...]
    host_name: str


async def open_world(
    config: BrokerConfig,
    seams: Seams,
    cleanup: AsyncExitStack,
    *,
    fail: Callable[[Exception], None],
    directory_failed: Callable[[], None],
) -> Opened:
    """Open everything, and register its closing with `cleanup`.

    Shape: `fail` is called when the broker cannot continue, `directory_failed` when one of several log directories
    fails. Errors: LogDirectoryError, CorruptMetaProperties, StoreError, ConfigError, OSError.
    """

    def went_offline(directory: LogDirectory) -> None:
        if all(each.offline for each in log_manager.directories):
            fail(OSError(f"all log directories have failed, {directory.path} last"))
        else:
            directory_failed()

    log_manager = LogManager(config.log_dirs, seams.file_layer, on_offline=went_offline)
    log_manager.lock()
    cleanup.callback(log_manager.unlock)
    meta = log_manager.meta_properties()
    embedded = seams.store is None and not config.zookeeper_connect
    metadata_directory: LogDirectory | None = None
    if embedded:
        metadata_directory = lock_metadata_directory(config, log_manager, cleanup)
        meta = meta or metadata_directory.meta_properties()
        refuse_kraft(metadata_directory.path, meta)
    store = seams.store or await open_store(config, seams.clock, fail)
    cleanup.push_async_callback(store.close)

    def close_logs() -> None:
        threads = config.get_int("num.recovery.threads.per.data.dir")
        log_manager.shutdown(seams.clock.now_ms(), threads=threads)

    cleanup.callback(close_logs)
    # Pushed after close_logs, so it runs before it: no work may write to the logs after they are closed.
    cleanup.callback(seams.executor.close)
    cluster = ClusterStore(store, seams.clock)
    if embedded and not config.get_bool(MAY_BE_MISSING):
        await refuse_missing_metadata(config.metadata_dir, store, log_manager)
    await cluster.ensure_paths()
    kept = meta.cluster_id if meta is not None and not config.zookeeper_connect else None
    cluster_id = await cluster.cluster_id(kept)
    node_id = config.node_id
    if node_id < 0:
        node_id = await generated_id(config, cluster, None if meta is None else meta.broker_id)
    log_manager.claim(node_id, cluster_id)
    if metadata_directory is not None:
        metadata_directory.claim(node_id, cluster_id)
    limits = NetLimits.of(config)
    endpoints: list[Endpoint] = []
    acceptors: list[Acceptor] = []
    for endpoint in config.listeners:
        acceptor = seams.network.listen(endpoint, limits)
        cleanup.callback(acceptor.close)
        acceptors.append(acceptor)
        endpoints.append(endpoint._replace(port=acceptor.port))
    return Opened(
        seams=seams,
        log_manager=log_manager,
        store=store,
        cluster=cluster,
        node_id=node_id,
        cluster_id=cluster_id,
        kept_cluster_id=kept,
        limits=limits,
        endpoints=tuple(endpoints),
        acceptors=tuple(acceptors),
        host_name=await host_name(config, seams.executor),
    )


def refuse_kraft(directory: str, meta: MetaProperties | None) -> None:
    """Refuse directories that a broker of a KRaft cluster has written, until its metadata is imported. Errors:
    NotImported.
    """
    if meta is None or meta.version != KRAFT_VERSION or Path(directory, EMBEDDED_STORE).exists():
        return
    raise NotImported(
        f"{directory} belongs to a broker of a KRaft cluster: make a copy, import the metadata with kwire coordination"
        " import --from-kraft COPY --in-place, and serve the copy; or choose another data directory (log.dirs)"
    )


def lock_metadata_directory(
    config: BrokerConfig, log_manager: LogManager, cleanup: AsyncExitStack
) -> LogDirectory:
    """The directory of the embedded store, locked. Errors: LogDirInUse, OSError."""
    real = os.path.realpath(config.metadata_dir)
    for each in log_manager.directories:
        if os.path.realpath(each.path) == real:
            return each
    directory = LogDirectory(log_manager.layer, config.metadata_dir)
    directory.lock()
    cleanup.callback(directory.unlock)
    return directory


async def refuse_missing_metadata(directory: str, store: Store, log_manager: LogManager) -> None:
    """Refuse to begin anew where a broker has kept records.

    Without its metadata, a broker has no topics, ACLs or users: what is stored would not be served, and what was
    protected would be open. Errors: MissingMetadata, StoreError.
    """
    if await store.exists(paths.CLUSTER_ID) is not None:
        return
    found = log_manager.partitions_on_disk()
    if not found:
        return
    raise MissingMetadata(
        f"{directory} has no metadata: {EMBEDDED_STORE} is new or empty, but there are logs of {len(found)} partitions,"
        f" such as {found[0]}. Restore {EMBEDDED_STORE}, or name its directory in metadata.log.dir. If the logs come"
        " from a cluster in ZooKeeper, bring its metadata here: kwire coordination export --zookeeper HOSTS FILE, then"
        f" kwire coordination import --data-dir {directory} FILE. To begin without topics, ACLs and users, set"
        f" {MAY_BE_MISSING}=true"
    )


async def host_name(config: BrokerConfig, executor: Executor) -> str:
    """This machine's name; the full name, which may need a name server, only if it is shown to others."""
    told = config.zookeeper_connect is not None or bool(config.advertised_listeners)
    advertised = {endpoint.listener for endpoint in config.advertised_listeners}
    if any(
        endpoint.host in WILDCARDS
        and endpoint.listener not in advertised
        and (told or endpoint.is_encrypted)
        for endpoint in config.listeners
    ):
        return await executor.in_thread(socket.getfqdn)
    return socket.gethostname()


async def open_store(
    config: BrokerConfig, clock: Clock, fail: Callable[[Exception], None]
) -> Store:
    """Open the store that the settings name. Errors: StoreError, ConfigError."""
    zookeeper = config.zookeeper_connect
    if zookeeper is None:
        from ..coordination.embedded import EmbeddedStore

        store = await EmbeddedStore.open(Path(config.metadata_dir, EMBEDDED_STORE), clock)
        store.on_failure(fail)
        return store
    from .zookeeper import connect_to_zookeeper

    return await connect_to_zookeeper(config, zookeeper)


async def generated_id(config: BrokerConfig, cluster: ClusterStore, known: int | None) -> int:
    """The id of a broker that has none in its configuration. Shape: `known` is the id in its log directories."""
    if known is not None:
        return known
    if config.zookeeper_connect is None:
        return 1
    return await cluster.next_broker_id(config.get_int("reserved.broker.max.id"))
