"""The effect of an update on the finalized feature levels; pure.

Source: FeatureControlManager of Apache Kafka 4.3; without features, as with ZooKeeper, KafkaController of 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from kwire.errors import ErrorCode

from .refusal import ControllerRefusal

Ranges = Mapping[str, tuple[int, int]]


class UpgradeType(IntEnum):
    """The allowed direction of a change. Source: FeatureUpdate.UpgradeType."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature, the requested level, and an `UpgradeType`, which may be an unknown number."""

    feature: str
    level: int
    upgrade_type: int


def finalized(supported: Ranges, stored: Mapping[str, int]) -> dict[str, int]:
    """The level of each feature: the highest, unless another one is stored. Shape: 0 means none."""
    levels = {}
    for name, (low, high) in supported.items():
        level = min(stored.get(name, high), high)
        levels[name] = level if level >= low else 0
    return levels


def updated(
    supported: Ranges, levels: Mapping[str, int], updates: Iterable[FeatureUpdate], node_id: int
) -> dict[str, int] | ControllerRefusal:
    """The levels after all updates, or the reason to refuse them all: INVALID_UPDATE_VERSION. A feature's last update
    counts.
    """
    after = dict(levels)
    for update in {each.feature: each for each in updates}.values():
        name, level, _ = update
        reason = refused(supported.get(name), levels.get(name, 0), update, node_id)
        if reason is not None:
            return ControllerRefusal(
                ErrorCode.INVALID_UPDATE_VERSION,
                "The update failed for all features since the following feature had an error:"
                f" Invalid update version {level} for feature {name}. {reason}",
            )
        after[name] = level
    return after


def refused(
    supported: tuple[int, int] | None, now: int, update: FeatureUpdate, node_id: int
) -> str | None:
    """The reason that a level cannot be set; None if it can."""
    name, level, upgrade_type = update
    if not UpgradeType.UPGRADE <= upgrade_type <= UpgradeType.UNSAFE_DOWNGRADE:
        return "The controller does not support the given upgrade type."
    if level < 0:
        return "A feature version cannot be less than 0."
    if supported is None:
        if level:
            return f"Local controller {node_id} does not support this feature."
        return f"Feature {name} not found."
    low, high = supported
    if not low <= level <= high:
        return f"Local controller {node_id} only supports versions {low}-{high}"
    if level < now and upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade."
        )
    if level > now and upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def refused_without_features(update: FeatureUpdate) -> str:
    """The reason that a broker without features refuses an update, in the words of 3.9."""
    name, level, upgrade_type = update
    if not name:
        return "Feature name can not be empty."
    if not UpgradeType.UPGRADE <= upgrade_type <= UpgradeType.UNSAFE_DOWNGRADE:
        return "Received unknown upgrade type."
    if level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if upgrade_type == UpgradeType.UPGRADE:
        return (
            f"Can not provide versionLevel: {level} less than 1 without setting the SAFE"
            " downgradeType in the request."
        )
    return "Can not delete non-existing finalized feature."
