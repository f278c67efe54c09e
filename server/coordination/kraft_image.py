"""The combined state of the records of a KRaft cluster's metadata; pure.

The same records produce the same image wherever they are read, so it is built from a copy of a directory in the same
way as by a broker of that cluster. Source: MetadataDelta and the `replay` methods of the controller (4.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

from kwire.messages.internal import broker_metadata, cluster_metadata, security_metadata

NO_LEADER_CHANGE = -2


class QuotaPart(NamedTuple):
    """A part of an entity; None stands for all others."""

    entity_type: str
    name: str | None


class KraftImage:
    """A cluster's metadata.

    Shape: `topics` and `partitions` by topic id; `partitions` have the state of each partition; `configs` by the number
    of the resource's type and its name; `quotas` by entity; `others` counts unknown records.
    """

    def __init__(self) -> None:
        self.topics: dict[bytes, str] = {}
        self.partitions: dict[bytes, dict[int, cluster_metadata.PartitionRecord]] = {}
        self.configs: dict[tuple[int, str], dict[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.brokers: dict[int, broker_metadata.RegisterBrokerRecord] = {}
        self.controllers: dict[int, broker_metadata.RegisterControllerRecord] = {}
        self.acls: dict[bytes, security_metadata.AccessControlEntryRecord] = {}
        self.credentials: dict[tuple[str, int], security_metadata.UserScramCredentialRecord] = {}
        self.quotas: dict[tuple[QuotaPart, ...], dict[str, float]] = {}
        self.tokens: dict[str, security_metadata.DelegationTokenRecord] = {}
        self.others: Counter[str] = Counter()
        self._transaction: list[Any] | None = None

    def apply(self, record: Any) -> None:
        """Apply a record. Records of a metadata transaction count once the transaction has ended.

        Errors: KeyError for a change of something that does not exist.
        """
        match record:
            case cluster_metadata.BeginTransactionRecord():
                self._transaction = []
            case cluster_metadata.EndTransactionRecord():
                complete, self._transaction = self._transaction or [], None
                for each in complete:
                    self._replay(each)
            case cluster_metadata.AbortTransactionRecord():
                self._transaction = None
            case _ if self._transaction is not None:
                self._transaction.append(record)
            case _:
                self._replay(record)

    def _replay(self, record: Any) -> None:
        replay = _REPLAY.get(type(record))
        if replay is None:
            self.others[type(record).__name__] += 1
        else:
            replay(self, record)

    # Topics

    def _topic(self, record: cluster_metadata.TopicRecord) -> None:
        self.topics[record.topic_id] = record.name
        self.partitions[record.topic_id] = {}

    def _remove_topic(self, record: cluster_metadata.RemoveTopicRecord) -> None:
        name = self.topics.pop(record.topic_id)
        del self.partitions[record.topic_id]
        self.configs.pop((TOPIC, name), None)

    def _partition(self, record: cluster_metadata.PartitionRecord) -> None:
        self.partitions[record.topic_id][record.partition_id] = record

    def _change_partition(self, change: cluster_metadata.PartitionChangeRecord) -> None:
        state = self.partitions[change.topic_id][change.partition_id]
        for name in (
            "isr",
            "replicas",
            "removing_replicas",
            "adding_replicas",
            "directories",
            "eligible_leader_replicas",
            "last_known_elr",
        ):
            value = getattr(change, name)
            if value is not None:
                setattr(state, name, value)
        if change.leader != NO_LEADER_CHANGE:
            state.leader = change.leader
            state.leader_epoch += 1
        if change.leader_recovery_state >= 0:
            state.leader_recovery_state = change.leader_recovery_state
        state.partition_epoch += 1

    def _clear_elr(self, record: cluster_metadata.ClearElrRecord) -> None:
        for topic_id, name in self.topics.items():
            if record.topic_name in ("", name):
                for state in self.partitions[topic_id].values():
                    state.eligible_leader_replicas = state.last_known_elr = None

    # Settings

    def _config(self, record: cluster_metadata.ConfigRecord) -> None:
        where = (record.resource_type, record.resource_name)
        configs = self.configs.setdefault(where, {})
        if record.value is not None:
            configs[record.name] = record.value
            return
        configs.pop(record.name, None)
        if not configs:
            del self.configs[where]

    def _feature(self, record: cluster_metadata.FeatureLevelRecord) -> None:
        self.features[record.name] = record.feature_level
        if not record.feature_level:
            del self.features[record.name]

    def _producer_ids(self, record: cluster_metadata.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _quota(self, record: security_metadata.ClientQuotaRecord) -> None:
        entity = tuple(
            sorted(QuotaPart(each.entity_type, each.entity_name) for each in record.entity)
        )
        values = self.quotas.setdefault(entity, {})
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if not values:
            del self.quotas[entity]

    # Brokers and controllers

    def _broker(self, record: broker_metadata.RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = record

    def _unregister(self, record: broker_metadata.UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _controller(self, record: broker_metadata.RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _nothing(self, record: Any) -> None:
        """For records that do not outlive the process that wrote them, or have no content."""

    # Security

    def _acl(self, record: security_metadata.AccessControlEntryRecord) -> None:
        self.acls[record.id] = record

    def _remove_acl(self, record: security_metadata.RemoveAccessControlEntryRecord) -> None:
        self.acls.pop(record.id, None)

    def _credential(self, record: security_metadata.UserScramCredentialRecord) -> None:
        self.credentials[record.name, record.mechanism] = record

    def _remove_credential(self, record: security_metadata.RemoveUserScramCredentialRecord) -> None:
        self.credentials.pop((record.name, record.mechanism), None)

    def _token(self, record: security_metadata.DelegationTokenRecord) -> None:
        self.tokens[record.token_id] = record

    def _remove_token(self, record: security_metadata.RemoveDelegationTokenRecord) -> None:
        self.tokens.pop(record.token_id, None)


#: The numbers of resources with configs. Source: ConfigResource.Type.
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32

_REPLAY: dict[type, Callable[[KraftImage, Any], None]] = {
    cluster_metadata.TopicRecord: KraftImage._topic,
    cluster_metadata.RemoveTopicRecord: KraftImage._remove_topic,
    cluster_metadata.PartitionRecord: KraftImage._partition,
    cluster_metadata.PartitionChangeRecord: KraftImage._change_partition,
    cluster_metadata.ClearElrRecord: KraftImage._clear_elr,
    cluster_metadata.ConfigRecord: KraftImage._config,
    cluster_metadata.FeatureLevelRecord: KraftImage._feature,
    cluster_metadata.ProducerIdsRecord: KraftImage._producer_ids,
    cluster_metadata.NoOpRecord: KraftImage._nothing,
    cluster_metadata.ZkMigrationStateRecord: KraftImage._nothing,
    broker_metadata.RegisterBrokerRecord: KraftImage._broker,
    broker_metadata.UnregisterBrokerRecord: KraftImage._unregister,
    broker_metadata.FenceBrokerRecord: KraftImage._nothing,
    broker_metadata.UnfenceBrokerRecord: KraftImage._nothing,
    broker_metadata.BrokerRegistrationChangeRecord: KraftImage._nothing,
    broker_metadata.RegisterControllerRecord: KraftImage._controller,
    security_metadata.ClientQuotaRecord: KraftImage._quota,
    security_metadata.AccessControlEntryRecord: KraftImage._acl,
    security_metadata.RemoveAccessControlEntryRecord: KraftImage._remove_acl,
    security_metadata.UserScramCredentialRecord: KraftImage._credential,
    security_metadata.RemoveUserScramCredentialRecord: KraftImage._remove_credential,
    security_metadata.DelegationTokenRecord: KraftImage._token,
    security_metadata.RemoveDelegationTokenRecord: KraftImage._remove_token,
}
