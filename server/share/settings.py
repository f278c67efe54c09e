"""The settings for share fetches in a group's configs.

Source: GroupConfig, ShareGroupConfigProvider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)
_BY_DURATION = "by_duration:"


class ShareSettings(NamedTuple):
    """The settings of one group.

    Shape: `max_record_locks` is per partition; `max_runs` limits in how many parts a batch may be acknowledged. `offset_reset` says where a group without a start offset begins:
    "latest", "earliest", or a number of milliseconds before now.
    """

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renews: bool = True
    read_committed: bool = False
    offset_reset: str | int = "latest"
    max_runs: int = 1 << 30

    @property
    def throttled_from(self) -> int:
        """The delivery count from which a batch is delivered in ever smaller parts."""
        return max(2, -(-self.delivery_count_limit // 2))


def share_settings(values: Mapping[str, Any]) -> ShareSettings:
    """The settings in the effective configs of a group."""
    reset: str | int = values["share.auto.offset.reset"]
    if isinstance(reset, str) and reset.startswith(_BY_DURATION):
        reset = _milliseconds(reset.removeprefix(_BY_DURATION))
    return ShareSettings(
        lock_duration_ms=values["share.record.lock.duration.ms"],
        delivery_count_limit=values["share.delivery.count.limit"],
        max_record_locks=values["share.partition.max.record.locks"],
        renews=values["share.renew.acknowledge.enable"],
        read_committed=values["share.isolation.level"] == "read_committed",
        offset_reset=reset,
    )


def _milliseconds(duration: str) -> int:
    found = _DURATION.fullmatch(duration)
    if found is None:  # the config allows no other value
        raise ValueError(f"{duration!r} is not a duration")
    days, hours, minutes, seconds = (int(each or 0) for each in found.groups()[:4])
    fraction = (found.group(5) or "").ljust(3, "0")[:3]
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + int(fraction)
