"""The stores of tests/coordination, for tests of the controller."""

from tests.coordination.conftest import run, served, zookeeper

__all__ = ["run", "served", "zookeeper"]
