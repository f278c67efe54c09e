"""A real broker in a test, with a clock and faults that the test commands; see docs/testing.md.

    from kwire.testing import Broker

    with Broker() as broker:
        topic = broker.topic("orders")
        ...  # any client of broker.bootstrap_servers

With pytest, the fixture `kafka` is such a broker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import Broker
    from .certificates import Certificate
    from .client.connections import KafkaError
    from .client.groups import Group
    from .client.records import Record
    from .clock import Clock
    from .cluster import Cluster
    from .exchange import Exchange
    from .faults import DiskFault, Fault, UnusedFault
    from .helpers import Helpers, Topic
    from .process import ProcessBroker
    from .recorder import Recorder
    from .remote import RemoteCluster
    from .secure import Acl, SecureBroker

__all__ = [
    "Acl",
    "Broker",
    "Certificate",
    "Clock",
    "Cluster",
    "DiskFault",
    "Exchange",
    "Fault",
    "Group",
    "Helpers",
    "KafkaError",
    "ProcessBroker",
    "Record",
    "Recorder",
    "RemoteCluster",
    "SecureBroker",
    "Topic",
    "UnusedFault",
]

#: Where each name is. They are imported on first use, because pytest loads the plugin in every run.
_MODULES = {
    "Acl": "secure",
    "Broker": "broker",
    "Certificate": "certificates",
    "Clock": "clock",
    "Cluster": "cluster",
    "DiskFault": "faults",
    "Exchange": "exchange",
    "Fault": "faults",
    "Group": "client.groups",
    "Helpers": "helpers",
    "KafkaError": "client.connections",
    "ProcessBroker": "process",
    "Record": "client.records",
    "Recorder": "recorder",
    "RemoteCluster": "remote",
    "SecureBroker": "secure",
    "Topic": "helpers",
    "UnusedFault": "faults",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
