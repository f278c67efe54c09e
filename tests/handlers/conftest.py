"""Partitions on real files for handlers that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.replicas import Replicas


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Replicas]:
    """A broker 0 without topics."""
    replicas = Replicas(tmp_path / "data").start()
    yield replicas
    replicas.stop()
