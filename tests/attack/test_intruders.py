"""Intruders stay out: the attacks of bench/attack/intruders on one secured broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.attack.doors import SecuredKwire
from bench.attack.intruders import ATTACKS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKwire]:
    directory = tmp_path_factory.mktemp("secured")
    delay = {"connection.failed.authentication.delay.ms": "20"}
    with SecuredKwire(directory, level="DEBUG", **delay) as started:
        assert isinstance(started, SecuredKwire)
        started.prepare()
        yield started


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TLS 1.0 is requested
def test_nobody_gets_in(broker: SecuredKwire) -> None:
    # The last attack looks for the secrets of those before.
    tried = {name: list(attack(broker)) for name, attack in ATTACKS.items()}
    assert min(map(len, tried.values())) >= 7
    assert [what for each in tried.values() for what, got_in in each if got_in] == []
    assert "Traceback" not in broker.log_path.read_text()
    assert broker.process is not None and broker.process.poll() is None
