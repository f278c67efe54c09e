"""The decision whether to accept the in-sync replicas that a leader proposes; pure.

Source: KafkaController.tryProcessAlterPartition (3.9); KIP-497, KIP-841 (eligible replicas), KIP-903 (broker epochs of
the replicas).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kwire.errors import ErrorCode
from kwire.messages.alter_partition import AlterPartitionRequestPartitionData

from ..coordination.paths import LeaderAndIsr
from ..metadata.image import PartitionImage
from .messages import RECOVERING

#: No broker epoch: in ZooKeeper mode, Apache Kafka's leaders do not know any.
NO_BROKER_EPOCH = -1
#: The first version in which requests identify topics by id, and ineligible replicas have their own error.
TOPIC_ID_VERSION = 2
EPOCHS_VERSION = 3


class Unchanged(NamedTuple):
    """The partition already is in the state that the leader proposes."""

    state: LeaderAndIsr


def decide(
    leader_id: int,
    asked: AlterPartitionRequestPartitionData,
    version: int,
    current: PartitionImage | None,
    online: Mapping[int, int],
    controller_epoch: int,
) -> LeaderAndIsr | Unchanged | ErrorCode:
    """The state to write if the partition epoch is still current, or the error.

    Shape: `online` maps the brokers that may be in sync to their epochs.
    Errors: NOT_CONTROLLER if the leader knows a newer state than this controller, FENCED_LEADER_EPOCH,
    INVALID_UPDATE_VERSION, INVALID_REQUEST, INELIGIBLE_REPLICA (OPERATION_NOT_ATTEMPTED before version 2),
    UNKNOWN_TOPIC_OR_PARTITION.
    """
    if current is None or current.partition_epoch < 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if asked.partition_epoch > current.partition_epoch or asked.leader_epoch > current.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if asked.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if version >= EPOCHS_VERSION:
        replicas = {each.broker_id: each.broker_epoch for each in asked.new_isr_with_epochs}
    else:
        replicas = dict.fromkeys(asked.new_isr, NO_BROKER_EPOCH)
    isr = tuple(replicas)
    recovering = asked.leader_recovery_state == RECOVERING
    wanted = LeaderAndIsr(
        leader_id, asked.leader_epoch, isr, controller_epoch, recovering, asked.partition_epoch
    )
    if (leader_id, isr, recovering) == (current.leader, current.isr, current.recovering):
        # Before the check of the partition epoch, so that a request can be repeated.
        return Unchanged(wanted._replace(partition_epoch=current.partition_epoch))
    if asked.partition_epoch < current.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if recovering and (len(isr) > 1 or not current.recovering):
        return ErrorCode.INVALID_REQUEST
    if leader_id != current.leader or leader_id not in replicas:
        return ErrorCode.INVALID_REQUEST
    stale = [
        replica
        for replica, epoch in replicas.items()
        if replica not in current.replicas
        or replica not in online
        or epoch not in (NO_BROKER_EPOCH, online[replica])
    ]
    if stale:
        if version >= TOPIC_ID_VERSION:
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.OPERATION_NOT_ATTEMPTED
    return wanted
