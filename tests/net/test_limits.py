"""The bounds on connections."""

from __future__ import annotations

import resource

import pytest

from server.descriptors import MAX_FILES, budget
from server.net.limits import ConnectionQuotas, NetLimits


@pytest.mark.parametrize(("soft", "kept"), [(256, 32), (1024, 128), (65_536, 256), (100, 32)])
def test_connections_and_files_have_one_budget(
    monkeypatch: pytest.MonkeyPatch, soft: int, kept: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    connections, files = budget()
    assert connections is not None
    assert connections + files == soft - kept
    assert files == min(connections, MAX_FILES)


def test_no_limit_of_open_files_is_no_limit_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert budget().connections is None


def test_broker_is_full_when_the_descriptors_are_taken() -> None:
    quotas = ConnectionQuotas(NetLimits(max_connections=3), most=2)
    for host in ("a", "b"):
        assert not quotas.full
        quotas.enter(host)
    assert quotas.full
    assert "open files" in quotas.reason
    quotas.limits = NetLimits(max_connections=2)
    assert quotas.reason == "max.connections"


def test_one_address_cannot_take_all_descriptors() -> None:
    quotas = ConnectionQuotas(NetLimits(), most=100)
    while (refused := quotas.enter("greedy")) is None:
        pass
    assert quotas.count == 75
    assert "open files" in refused
    assert [quotas.enter(f"host-{number}") for number in range(25)] == [None] * 25
    assert quotas.full
