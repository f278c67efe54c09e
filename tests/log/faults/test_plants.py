"""Each planted bug is noticed by some schedule, which shows that the schedules can fail."""

from __future__ import annotations

import pytest

from .plants import PLANTS, Plant, catch


@pytest.mark.parametrize("plant", PLANTS, ids=[plant.name for plant in PLANTS])
def test_planted_bug_is_caught(plant: Plant) -> None:
    caught = catch(plant, plant.first)
    assert caught is not None, f"no schedule noticed: {plant.name}"
