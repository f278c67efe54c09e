"""All partitions of which this broker has replicas, kept as the controller says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from kwire.errors import ErrorCode
from kwire.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from kwire.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from kwire.types import ZERO_UUID

from ..clock import Clock
from ..executor import Executor
from ..log.file_layer import OUT_OF_DESCRIPTORS
from ..log.log_config import LogConfig
from ..log.log_manager import LogManager
from ..metadata.image import EPOCH_DURING_DELETE, NO_EPOCH, TOPICS, MetadataImage
from ..metadata.topic_partition import TopicPartition
from ..shares import Shares
from ..turns import Turns
from ..workers import FairPermits
from .append import Appends
from .membership import Membership, PartitionState
from .partition import Partition
from .stray_logs import StrayLogs

if TYPE_CHECKING:
    from ..log.log import Log
    from .replication_quota import ReplicationQuota

logger = logging.getLogger(__name__)

#: Converted records are in memory until they are sent, so only this many fetches may have any at a time.
MAX_CONVERTING = 2

#: Called when this broker starts (True) or stops (False) leading a partition.
LeadershipListener = Callable[[Partition, bool], None]

#: The log config of a topic and its min.insync.replicas.
Settings = tuple[LogConfig, int]


class Fetchers(Protocol):
    """Copies the partitions that this broker follows from their leaders."""

    def follow(self, partition: Partition) -> None:
        """Copy from `partition.state.leader` from now on, in that leader's epoch."""
        ...

    def stop(self, tp: TopicPartition) -> None:
        """Stop copying this partition."""
        ...


class Moves(Protocol):
    """Moves replicas between the log directories of this broker."""

    def begin(self, tp: TopicPartition) -> None:
        """Copy a replica that has a copy in another directory."""
        ...


class NoFetchers:
    """For a broker that follows no other."""

    def follow(self, partition: Partition) -> None:
        """Do nothing."""

    def stop(self, tp: TopicPartition) -> None:
        """Do nothing."""


class ReplicaManager:
    """Creates, leads, follows and deletes replicas; source: kafka.server.ReplicaManager.

    `settings(topic)` gives the log config of a topic and its min.insync.replicas.
    """

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        settings: Callable[[str], Settings],
        clock: Clock,
        membership: Membership[Partition] | None = None,
        executor: Executor | None = None,
        *,
        turns: Turns | None = None,
        fetchers: Fetchers | None = None,
        leader_quota: ReplicationQuota | None = None,
        stray_advice: str = "",
    ) -> None:
        """Without an executor, records are prepared by a new one; `turns` are the broker's."""
        self.broker_id = broker_id
        self.membership = membership or Membership(broker_id)
        self.fetchers: Fetchers = fetchers or NoFetchers()
        #: Continues the moves that a restart interrupted.
        self.moves: Moves | None = None
        #: The quota for throttled followers; None without other brokers.
        self.leader_quota = leader_quota
        self.partitions: dict[TopicPartition, Partition] = {}
        #: Partitions whose log is, or may be, in a directory that failed or could not be read.
        self.offline: set[TopicPartition] = set()
        #: The epoch of the latest known controller; requests from earlier ones are refused.
        self.controller_epoch = 0
        self.turns = turns or Turns(clock.monotonic_us)
        #: The way into the partitions that this broker leads.
        self.appends = Appends(executor or Executor(), clock, self.offline, self.turns)
        #: The partitions that waiting fetches of many partitions watch, by client; see read.py.
        self.watched = Shares()
        #: Fetches whose records are converted for old clients, and therefore in memory, at a time.
        self.converting = FairPermits(MAX_CONVERTING)
        #: The last failure of a read that was logged for each partition.
        self.failed_reads: dict[TopicPartition, str] = {}
        #: The logs on disk that are no replicas of this broker; `stray_advice` ends the warning about them.
        self.strays = StrayLogs(broker_id, stray_advice)
        self._strays_reported = False
        self._log_manager = log_manager
        self._settings = settings
        self.clock = clock
        self._leadership_listeners: list[LeadershipListener] = []

    def get(self, topic: str, partition: int) -> Partition | None:
        """The replica on this broker, None where it has none."""
        # TopicPartition hashes and compares as the plain tuple, which is cheaper to make.
        return self.partitions.get((topic, partition))  # type: ignore[call-overload, no-any-return]

    def why_missing(self, image: MetadataImage, topic: str, partition: int) -> ErrorCode:
        """The error for a partition that `get` does not find.

        Shape: UNKNOWN_TOPIC_OR_PARTITION, KAFKA_STORAGE_ERROR or NOT_LEADER_OR_FOLLOWER.
        """
        if image.partition(topic, partition) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if TopicPartition(topic, partition) in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.partitions.values())

    def on_leadership(self, listener: LeadershipListener) -> None:
        """Tell `listener` of every partition that this broker starts or stops leading."""
        self._leadership_listeners.append(listener)

    # -- requests of the controller --------------------------------------------------------------

    def take_controller_epoch(self, epoch: int) -> bool:
        """Note the epoch of a controller that sent a request; False if a later epoch is known."""
        if epoch < self.controller_epoch:
            return False
        self.controller_epoch = epoch
        return True

    def become_leader_or_follower(
        self, request: LeaderAndIsrRequest, *, more_follows: bool = False
    ) -> LeaderAndIsrResponse:
        """Take the roles that the controller gives; missing logs are created.

        Shape: with `more_follows` the controller has already announced more than this request
        holds.
        Errors: STALE_CONTROLLER_EPOCH for the whole, and by partition for a leader epoch that is
        not newer; INCONSISTENT_TOPIC_ID, KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_OR_PARTITION if this
        broker is not a replica. Source: ReplicaManager.becomeLeaderOrFollower.
        """
        if not self.take_controller_epoch(request.controller_epoch):
            return LeaderAndIsrResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        response = LeaderAndIsrResponse(partition_errors=[], topics=[])
        for topic in request.topic_states or by_topic(request.ungrouped_partition_states):
            settings: Settings | None = None
            row = LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=[])
            for state in topic.partition_states:
                if settings is None:
                    settings = self._settings(topic.topic_name)
                tp = TopicPartition(topic.topic_name, state.partition_index)
                error = self._become(tp, topic.topic_id, state, settings)
                row.partition_errors.append(
                    LeaderAndIsrPartitionError(
                        topic_name=tp.topic, partition_index=tp.partition, error_code=error
                    )
                )
            response.topics.append(row)
            response.partition_errors += row.partition_errors
        if not more_follows:
            self._report_strays()
        return response

    def _become(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        told: LeaderAndIsrPartitionState,
        settings: Settings,
    ) -> ErrorCode:
        if self.broker_id not in told.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if tp in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partitions.get(tp)
        if partition is None:
            log = self._open_log(tp, topic_id, settings[0], is_new=told.is_new)
            if log is None:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if log.config != settings[0]:  # it was opened before its topic's settings were known
                log.update_config(settings[0])
            partition = self.partitions[tp] = Partition(tp, log, self.membership)
            partition.min_insync_replicas = settings[1]
            if self.moves is not None and self._log_manager.future(tp) is not None:
                self.moves.begin(tp)
        elif partition.log.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        elif topic_id not in (ZERO_UUID, partition.log.topic_id):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        before, led = partition.state, partition.is_leader
        if told.leader_epoch <= before.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        state = PartitionState(
            told.leader,
            told.leader_epoch,
            tuple(told.isr),
            tuple(told.replicas),
            told.partition_epoch,
            told.leader_recovery_state != 0,
        )
        if state.leader == self.broker_id:
            self.fetchers.stop(tp)
        partition.apply(state, self.clock.now_ms())
        if led or partition.is_leader:
            self._tell(partition, partition.is_leader)
        if not partition.is_leader:
            self.fetchers.follow(partition)
        return ErrorCode.NONE

    def stop_replicas(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop following, and delete where the controller says so.

        Errors: STALE_CONTROLLER_EPOCH for the whole; by partition FENCED_LEADER_EPOCH and
        KAFKA_STORAGE_ERROR. Source: ReplicaManager.stopReplicas.
        """
        if not self.take_controller_epoch(request.controller_epoch):
            return StopReplicaResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH)
        rows = [
            StopReplicaPartitionError(
                topic_name=topic.topic_name,
                partition_index=state.partition_index,
                error_code=self._stop(
                    TopicPartition(topic.topic_name, state.partition_index), state
                ),
            )
            for topic in stopped_topics(request)
            for state in topic.partition_states
        ]
        return StopReplicaResponse(partition_errors=rows)

    def _stop(self, tp: TopicPartition, told: StopReplicaPartitionState) -> ErrorCode:
        if tp in self.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = self.partitions.get(tp)
        if (
            partition is not None
            and told.leader_epoch not in (NO_EPOCH, EPOCH_DURING_DELETE)
            and told.leader_epoch < partition.state.leader_epoch
        ):
            return ErrorCode.FENCED_LEADER_EPOCH
        self.fetchers.stop(tp)
        if told.delete_partition:
            return self._delete_partition(tp)
        return ErrorCode.NONE

    def directory_failed(self) -> None:
        """Give up the replicas whose logs went offline with their directory.

        Requests that wait for one get KAFKA_STORAGE_ERROR, and coordinators are told that it is no
        longer led here: another broker takes over as soon as the controller knows.
        """
        lost = [tp for tp, partition in self.partitions.items() if partition.log.offline]
        for tp in lost:
            self.fetchers.stop(tp)
            self.offline.add(tp)
            partition = self.partitions.pop(tp)
            led = partition.is_leader
            partition.close(ErrorCode.KAFKA_STORAGE_ERROR)
            if led:
                self._tell(partition, False)
        if lost:
            logger.error(
                "%d replicas are lost with their log directory: %s%s",
                len(lost),
                ", ".join(map(str, lost[:5])),
                ", ..." if len(lost) > 5 else "",
            )

    # -- configs ---------------------------------------------------------------------------------

    def on_image(self, before: MetadataImage, after: MetadataImage) -> None:
        """Apply changed settings of topics to their logs, and stop waiting for brokers that have left; an ImageListener."""
        if before.brokers.keys() - after.brokers.keys():
            self.drop_laggards()
        changed = [name for kind, name in after.changes_since(before).configs if kind == TOPICS]
        if changed and self.partitions:
            self.reconfigure(changed)

    def _report_strays(self) -> None:
        if self._strays_reported:
            return
        self._strays_reported = True
        now_ms = self.clock.monotonic_ms()
        self.strays.look(self._log_manager.logs(), self.partitions, MetadataImage(), now_ms, -1)

    def delete_strays(self, image: MetadataImage, delay_ms: int) -> None:
        """Delete logs whose partitions have all replicas on other brokers, `delay_ms` after they were noticed."""
        if not image.brokers:
            return  # this broker does not know yet what it has replicas of
        now_ms = self.clock.monotonic_ms()
        logs = self._log_manager.logs()
        for tp in self.strays.look(logs, self.partitions, image, now_ms, delay_ms):
            logger.info("%s is deleted here: its replicas are on other brokers", tp)
            self._delete_partition(tp)

    def reconfigure(self, topics: Iterable[str] | None = None) -> None:
        """Apply the settings of these topics, or of all, to the logs that are open."""
        wanted = None if topics is None else set(topics)
        # Computing the settings costs more than applying them, and a topic may have thousands of
        # partitions.
        settings: dict[str, Settings] = {}
        for tp, partition in self.partitions.items():
            if wanted is None or tp.topic in wanted:
                found = settings.get(tp.topic)
                if found is None:
                    found = settings[tp.topic] = self._settings(tp.topic)
                config, minimum = found
                partition.log.update_config(config)
                if minimum != partition.min_insync_replicas:
                    partition.require_in_sync(minimum, self.clock.now_ms())

    def _open_log(
        self, tp: TopicPartition, topic_id: bytes, config: LogConfig, *, is_new: bool
    ) -> Log | None:
        manager, now_ms = self._log_manager, self.clock.now_ms()
        log = manager.get(tp)
        try:
            if log is not None and log.topic_id not in (None, topic_id) and topic_id != ZERO_UUID:
                # That topic was deleted while this broker was down; or the coordination store was
                # lost, and this is all that is left of the records.
                aside = manager.set_aside(tp, now_ms)
                logger.warning(
                    "%s on disk belongs to an earlier topic; it was moved to %s", tp, aside
                )
                log = None
            if log is None:
                if not is_new and any(each.offline for each in manager.directories):
                    # A new, empty log would replace one that is only out of reach.
                    self.offline.add(tp)
                    return None
                log = manager.create(tp, topic_id, config, now_ms)
            elif log.topic_id is None and topic_id != ZERO_UUID:
                log.assign_topic_id(topic_id)
        except OSError as error:
            logger.error("cannot open the log of %s: %s", tp, error)
            if error.errno not in OUT_OF_DESCRIPTORS:  # else the disk is fine: try again
                self.offline.add(tp)
            return None
        return log

    def _delete_partition(self, tp: TopicPartition) -> ErrorCode:
        self.offline.discard(tp)
        partition = self.partitions.pop(tp, None)
        if partition is not None:
            led = partition.is_leader
            partition.close()
            if led:
                self._tell(partition, False)
        if self._log_manager.get(tp) is None:
            return ErrorCode.NONE
        try:
            self._log_manager.delete(tp, self.clock.now_ms())
        except OSError as error:
            logger.error("cannot delete the log of %s: %s", tp, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def close(self) -> None:
        """Stop leading, so that nothing is appended while the logs are closed."""
        self.appends.close()
        for partition in self.partitions.values():
            partition.close()

    def _tell(self, partition: Partition, leads: bool) -> None:
        for listener in self._leadership_listeners:
            listener(partition, leads)

    def drop_laggards(self) -> None:
        """Propose to drop slow followers; called every half `replica.lag.time.max.ms`, and when a broker has left."""
        now_ms = self.clock.now_ms()
        for partition in self.partitions.values():
            partition.drop_laggards(now_ms)


def by_topic(states: Iterable[LeaderAndIsrPartitionState]) -> list[LeaderAndIsrTopicState]:
    """Group the partition states of old LeaderAndIsr requests (versions 0 and 1) by topic."""
    topics: dict[str, LeaderAndIsrTopicState] = {}
    for state in states:
        topic = topics.get(state.topic_name)
        if topic is None:
            topic = topics[state.topic_name] = LeaderAndIsrTopicState(
                topic_name=state.topic_name, partition_states=[]
            )
        topic.partition_states.append(state)
    return list(topics.values())


def stopped_topics(request: StopReplicaRequest) -> list[StopReplicaTopicState]:
    """The partitions of a StopReplica request of any version, in the shape of version 3."""
    if request.topic_states:
        return request.topic_states
    delete = request.delete_partitions
    listed = [(topic.name, topic.partition_indexes) for topic in request.topics]
    listed += [(each.topic_name, [each.partition_index]) for each in request.ungrouped_partitions]
    return [
        StopReplicaTopicState(
            topic_name=name,
            partition_states=[
                StopReplicaPartitionState(partition_index=number, delete_partition=delete)
                for number in numbers
            ],
        )
        for name, numbers in listed
    ]
