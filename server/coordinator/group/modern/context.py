"""The information about the client and the broker that an operation on a group needs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from ....metadata.image import MetadataImage
from ....shares import NOBODY
from ..config import GroupConfig
from ..memory import GroupMemory
from .topic_hash import TopicHashes


class GroupClient(NamedTuple):
    """The sender of a request: its version, the topics that it may see, and for whom memory is counted."""

    client_id: str
    client_host: str
    version: int
    may_describe: Callable[[str], bool]
    account: Hashable = NOBODY


class GroupSettings(NamedTuple):
    """The settings that can be set per group. Unit: ms."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def of(cls, config: GroupConfig, kind: str = "consumer") -> GroupSettings:
        """The settings of a group without settings of its own; `kind` is "consumer" or "share"."""
        if kind == "share":
            return cls(
                config.share_session_timeout_ms,
                config.share_heartbeat_interval_ms,
                config.share_assignment_interval_ms,
            )
        return cls(
            config.consumer_session_timeout_ms,
            config.consumer_heartbeat_interval_ms,
            config.consumer_assignment_interval_ms,
        )

    @classmethod
    def by_kind(cls, config: GroupConfig) -> dict[str, GroupSettings]:
        """The settings of both kinds."""
        return {kind: cls.of(config, kind) for kind in ("consumer", "share")}


class Metadata(NamedTuple):
    """The topics as the groups of a broker see them, and the settings of single groups by id and kind."""

    image: Callable[[], MetadataImage]
    hashes: TopicHashes
    settings: Callable[[str, str], GroupSettings]


class GroupContext(NamedTuple):
    """What an operation needs of the broker: topics, settings of the group, and the memory of all groups."""

    config: GroupConfig
    settings: GroupSettings
    image: MetadataImage
    hashes: TopicHashes
    now_ms: int
    memory: GroupMemory

    def may_assign(self, last_ms: int) -> bool:
        """Whether a group whose last target was made at `last_ms` (0: never) may get another.

        A time in the future is from before the clock was set back, or from another broker. Apache Kafka 4.3.0 would wait
        until then.
        """
        interval_ms = self.settings.assignment_interval_ms
        return not last_ms or not last_ms <= self.now_ms < last_ms + interval_ms
