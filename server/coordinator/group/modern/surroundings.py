"""What an operation on a group sees of its client and of the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ....metadata.image import MetadataImage
from ..config import GroupConfig
from ..memory import GroupMemory
from .topic_hash import TopicHashes


class Client(NamedTuple):
    """Who sends a request: its version, and which topics it may know of."""

    client_id: str
    client_host: str
    version: int
    may_describe: Callable[[str], bool]


class GroupSettings(NamedTuple):
    """The settings that a group may have of its own. Unit: ms."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int

    @classmethod
    def of(cls, config: GroupConfig, kind: str = "consumer") -> GroupSettings:
        """Those of a group that has none of its own; `kind` is "consumer" or "share"."""
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
        """Those of both kinds."""
        return {kind: cls.of(config, kind) for kind in ("consumer", "share")}


class Metadata(NamedTuple):
    """What the groups of a broker see of its topics, and the settings of single groups by id and kind."""

    image: Callable[[], MetadataImage]
    hashes: TopicHashes
    settings: Callable[[str, str], GroupSettings]


class Surroundings(NamedTuple):
    """What an operation sees of the broker: the topics, the settings of the group, and the memory of all groups."""

    config: GroupConfig
    settings: GroupSettings
    image: MetadataImage
    hashes: TopicHashes
    now_ms: int
    memory: GroupMemory
