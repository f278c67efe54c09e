"""Events of the cluster. Each one says only "read this again"."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Change(Enum):
    """What has to be read again."""

    #: A broker came or went, or changed its registration.
    BROKERS = "brokers"
    #: A topic came or went.
    TOPICS = "topics"
    #: A topic's node was set: partitions were added or replicas reassigned.
    ASSIGNMENT = "assignment"
    #: A topic's deletion was requested, or is done.
    DELETIONS = "deletions"
    #: Brokers of an older inter-broker protocol changed in-sync replicas themselves.
    ISR_CHANGES = "in-sync replicas"
    #: A log directory of a broker failed.
    LOG_DIRS = "log directories"
    #: A tool requests a reassignment of replicas.
    REASSIGNMENT = "reassignment"
    #: A tool requests the election of preferred leaders.
    PREFERRED_ELECTION = "preferred election"
    #: There is a new notification of a changed config.
    CONFIG = "config"
    #: The controller's node came, went, or was set.
    CONTROLLER = "controller"
    #: The connection was lost and with it every watch: read everything again.
    RECONNECTED = "reconnected"
    #: The session is over: this broker's node is gone and another may be controller.
    SESSION_EXPIRED = "session expired"


class ClusterEvent(NamedTuple):
    """One event; `topic` only with `Change.ASSIGNMENT`."""

    change: Change
    topic: str = ""
