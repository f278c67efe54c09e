"""Events of the cluster. Each one only means "read this again"."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class ChangeKind(Enum):
    """What has to be read again."""

    #: A broker started, stopped, or changed its registration.
    BROKERS = "brokers"
    #: A topic was created or removed.
    TOPICS = "topics"
    #: A topic's node was set: partitions were added or replicas reassigned.
    ASSIGNMENT = "assignment"
    #: A topic's deletion was requested, or is complete.
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
    #: The controller's node was created, removed, or set.
    CONTROLLER = "controller"
    #: The connection was lost, and every watch with it; read everything again.
    RECONNECTED = "reconnected"
    #: The session has ended: this broker's node is gone and another broker may be controller.
    SESSION_EXPIRED = "session expired"


class ClusterEvent(NamedTuple):
    """One event; `topic` only with `ChangeKind.ASSIGNMENT`."""

    change: ChangeKind
    topic: str = ""
