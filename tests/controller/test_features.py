"""Updates of feature levels, compared with the answers of Apache Kafka 4.3.0 and 3.9.2 to the same requests."""

from __future__ import annotations

import pytest

from kwire.errors import ErrorCode
from server.controller.features import (
    FeatureUpdate,
    finalized,
    refused_without_features,
    updated,
)
from server.controller.refusal import ControllerRefusal

NAME = "transaction.version"
SUPPORTED = {NAME: (0, 2)}
UPGRADE, SAFE, UNSAFE = 1, 2, 3


@pytest.mark.parametrize(
    ("now", "update", "reason"),
    [
        (
            2,
            FeatureUpdate(NAME, 1, UPGRADE),
            "Can't downgrade the version of this feature without setting the upgrade type to either"
            " safe or unsafe downgrade.",
        ),
        (1, FeatureUpdate(NAME, 2, SAFE), "Can't downgrade to a newer version."),
        (2, FeatureUpdate(NAME, 3, UPGRADE), "Local controller 0 only supports versions 0-2"),
        (2, FeatureUpdate(NAME, -1, SAFE), "A feature version cannot be less than 0."),
        (2, FeatureUpdate(NAME, 1, 9), "The controller does not support the given upgrade type."),
        (2, FeatureUpdate(NAME, 1, 0), "The controller does not support the given upgrade type."),
        (
            2,
            FeatureUpdate("nope", 1, UPGRADE),
            "Local controller 0 does not support this feature.",
        ),
        (2, FeatureUpdate("nope", 0, SAFE), "Feature nope not found."),
    ],
)
def test_refusals_are_those_of_4_3(now: int, update: FeatureUpdate, reason: str) -> None:
    other = FeatureUpdate("group.version", 0, SAFE)
    supported = {**SUPPORTED, "group.version": (0, 1)}
    levels = {NAME: now, "group.version": 1}
    assert updated(supported, levels, [other, update], 0) == ControllerRefusal(
        ErrorCode.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error:"
        f" Invalid update version {update.level} for feature {update.feature}. {reason}",
    )


@pytest.mark.parametrize(
    ("updates", "level"),
    [
        ([], 2),
        ([FeatureUpdate(NAME, 2, UPGRADE)], 2),
        ([FeatureUpdate(NAME, 2, SAFE)], 2),
        ([FeatureUpdate(NAME, 1, SAFE)], 1),
        ([FeatureUpdate(NAME, 0, UNSAFE)], 0),
        ([FeatureUpdate(NAME, 1, SAFE), FeatureUpdate(NAME, 2, UPGRADE)], 2),
    ],
)
def test_levels_are_set(updates: list[FeatureUpdate], level: int) -> None:
    assert updated(SUPPORTED, {NAME: 2}, updates, 0) == {NAME: level}


def test_level_that_was_never_set_is_the_highest() -> None:
    assert finalized(SUPPORTED, {}) == {NAME: 2}
    assert finalized(SUPPORTED, {NAME: 0}) == {NAME: 0}
    assert finalized(SUPPORTED, {NAME: 7, "of a newer kwire": 1}) == {NAME: 2}


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        (FeatureUpdate("", 1, UPGRADE), "Feature name can not be empty."),
        (FeatureUpdate(NAME, 1, 9), "Received unknown upgrade type."),
        (
            FeatureUpdate(NAME, 2, UPGRADE),
            "Could not apply finalized feature update because the provided feature is not"
            " supported.",
        ),
        (
            FeatureUpdate(NAME, 0, UPGRADE),
            "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in"
            " the request.",
        ),
        (FeatureUpdate(NAME, -1, SAFE), "Can not delete non-existing finalized feature."),
    ],
)
def test_refusals_without_features_are_those_of_3_9(update: FeatureUpdate, reason: str) -> None:
    assert refused_without_features(update) == reason
