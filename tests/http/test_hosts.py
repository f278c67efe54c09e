"""Which names a client may use for the HTTP listener."""

from __future__ import annotations

import pytest

from server.http.hosts import AllowedHosts


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:80", "[::1]:80", "10.1.2.3", "Broker.Example.:9644"],
)
def test_own_names_and_addresses_are_allowed(host: str) -> None:
    assert AllowedHosts(["broker.example"]).allows(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "a b",
        "[::1",
        "1:2:3",
    ],
)
def test_other_names_are_refused(host: str) -> None:
    assert not AllowedHosts(["broker.example", ""]).allows(host)


def test_star_allows_any_name() -> None:
    assert AllowedHosts(["*"]).allows("kwire.monitoring.svc")
