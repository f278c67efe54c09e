"""The interface between the share partitions of a broker and its other rooms."""

from __future__ import annotations

import logging
from concurrent.futures import BrokenExecutor
from typing import TYPE_CHECKING, Any

from ..config.group_keys import effective
from ..coordination.paths import entity_node
from ..handlers.list_offsets import search_in_files
from ..metadata.image import GROUPS
from ..workers import TookTooLong, TookTooMuch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ..clock import Clock
    from ..config import BrokerConfig
    from ..coordinator.share_state.persister import SharePersister
    from ..executor import Executor
    from ..log.time_search import Found, TimeSearch
    from ..metadata.image import MetadataImage
    from ..replication.replica_manager import ReplicaManager
    from ..share.manager import SharePartitionManager
    from ..share.settings import ShareSettings
    from ..turns import Turns

logger = logging.getLogger(__name__)

#: The number of groups with their own configs whose settings are cached.
REMEMBERED = 1000


class LateSharePartitions:
    """A proxy for the share partitions, which are built, and their modules imported, for the first request that needs
    them.
    """

    def __init__(self, build: Callable[[], SharePartitionManager]) -> None:
        self._build = build
        self._built: SharePartitionManager | None = None

    def __getattr__(self, name: str) -> Any:
        if self._built is None:
            self._built = self._build()
        return getattr(self._built, name)

    def close(self) -> None:
        """Close them, if they were built."""
        if self._built is not None:
            self._built.close()


def share_partitions(
    config: BrokerConfig,
    replicas: ReplicaManager,
    metadata: Callable[[], MetadataImage],
    persister: SharePersister,
    clock: Clock,
    turns: Turns,
    executor: Executor,
) -> SharePartitionManager:
    """Build the share partitions of a broker; none is loaded yet."""
    from ..share.led import ShareRooms
    from ..share.manager import SharePartitionManager
    from ..share.sessions import ShareSessionCache

    async def search(wanted: TimeSearch) -> Found | None:
        try:
            return await executor.in_worker(
                wanted.directory, search_in_files, wanted, executor.limits.cpu_s / 2
            )
        except (BrokenExecutor, TookTooLong, TookTooMuch) as error:
            logger.warning(
                "a share group's start in %s is not looked up: %s", wanted.directory, error
            )
            return None

    shares = SharePartitionManager(
        ShareRooms(
            replicas,
            metadata,
            persister,
            clock,
            turns,
            GroupShareSettings(config, metadata),
            search,
        ),
        ShareSessionCache(config.get_int("group.share.max.share.sessions")),
        config.get_int("kwire.share.records.max.bytes"),
    )
    replicas.on_leadership(shares.on_leadership)
    return shares


class GroupShareSettings:
    """The settings of each share group: those of the image, or the broker's for groups without configs."""

    def __init__(self, config: BrokerConfig, metadata: Callable[[], MetadataImage]) -> None:
        self._config = config
        self._metadata = metadata
        self._inherited: ShareSettings | None = None
        self._known: dict[str, tuple[Mapping[str, str], ShareSettings]] = {}

    def __call__(self, group_id: str) -> ShareSettings:
        from ..share.settings import share_settings

        stored = self._metadata().config(GROUPS, entity_node(group_id))
        if not stored:
            if (
                self._inherited is None
            ):  # the broker's keys for share groups cannot be changed while it runs
                self._inherited = share_settings(effective(self._config, {}))
            return self._inherited
        known = self._known.get(group_id)
        if known is not None and known[0] is stored:
            return known[1]
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        settings = share_settings(effective(self._config, stored))
        self._known[group_id] = stored, settings
        return settings
