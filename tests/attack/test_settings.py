"""Settings that a script got wrong."""

from __future__ import annotations

import pytest

from server.config import BrokerConfig, ConfigError


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"log.dirs": ""}, "At least one log directory must be defined"),
        ({"broker.id": "-5"}, "broker.id must be greater than or equal to -1"),
        (
            {"broker.id": "2000", "zookeeper.connect": "localhost:2181"},
            "not greater than reserved.broker.max.id",
        ),
    ],
)
def test_settings_that_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(settings)


def test_any_number_is_good_for_a_broker_without_zookeeper() -> None:
    assert BrokerConfig({"broker.id": "2000"}).node_id == 2000
