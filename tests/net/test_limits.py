"""The bounds on connections."""

from __future__ import annotations

import resource

import pytest

from server.net.limits import ConnectionQuotas, NetLimits, descriptors_for_connections


@pytest.mark.parametrize(("soft", "kept"), [(256, 64), (1024, 256), (65_536, 512), (100, 48)])
def test_files_keep_a_share_of_the_descriptors(
    monkeypatch: pytest.MonkeyPatch, soft: int, kept: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert descriptors_for_connections() == soft - kept


def test_no_limit_of_open_files_is_no_limit_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert descriptors_for_connections() is None


def test_broker_is_full_when_the_descriptors_are_taken() -> None:
    quotas = ConnectionQuotas(NetLimits(max_connections=3), most=2)
    for host in ("a", "b"):
        assert not quotas.full
        quotas.enter(host)
    assert quotas.full
    assert "open files" in quotas.reason
    quotas.limits = NetLimits(max_connections=2)
    assert quotas.reason == "max.connections"
