"""Which versions of each API a broker of a given Kafka release advertises.

Regardless of the handlers' abilities, the broker claims no more than the release that it presents itself as: under
ZooKeeper, brokers of Apache Kafka 3.9 may be in the same cluster, and clients judge the abilities of a cluster by the
answers of its brokers. Source: ApiVersions answers of running brokers; both ends inclusive.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

TRANSACTION_VERSION = "transaction.version"
GROUP_VERSION = "group.version"
SHARE_VERSION = "share.version"


class ApiRange(NamedTuple):
    """One row of an ApiVersions answer; both ends inclusive."""

    api_key: int
    min_version: int
    max_version: int


class Ceiling(NamedTuple):
    """The ranges of one release by API key, and those of its features that kwire has.

    Shape: `features` maps name -> (lowest, highest) level; the highest is finalized unless a client sets another.
    """

    name: str
    ranges: dict[int, tuple[int, int]]
    features: Mapping[str, tuple[int, int]] = MappingProxyType({})


#: Apache Kafka 3.9.2, ZooKeeper mode.
CEILING_3_9 = Ceiling(
    "3.9",
    {
        0: (0, 11),  # Produce
        1: (0, 17),  # Fetch
        2: (0, 9),  # ListOffsets
        3: (0, 12),  # Metadata
        4: (0, 7),  # LeaderAndIsr
        5: (0, 4),  # StopReplica
        6: (0, 8),  # UpdateMetadata
        7: (0, 3),  # ControlledShutdown
        8: (0, 9),  # OffsetCommit
        9: (0, 9),  # OffsetFetch
        10: (0, 6),  # FindCoordinator
        11: (0, 9),  # JoinGroup
        12: (0, 4),  # Heartbeat
        13: (0, 5),  # LeaveGroup
        14: (0, 5),  # SyncGroup
        15: (0, 5),  # DescribeGroups
        16: (0, 5),  # ListGroups
        17: (0, 1),  # SaslHandshake
        18: (0, 4),  # ApiVersions
        19: (0, 7),  # CreateTopics
        20: (0, 6),  # DeleteTopics
        21: (0, 2),  # DeleteRecords
        22: (0, 5),  # InitProducerId
        23: (0, 4),  # OffsetForLeaderEpoch
        24: (0, 5),  # AddPartitionsToTxn
        25: (0, 4),  # AddOffsetsToTxn
        26: (0, 4),  # EndTxn
        27: (0, 1),  # WriteTxnMarkers
        28: (0, 4),  # TxnOffsetCommit
        29: (0, 3),  # DescribeAcls
        30: (0, 3),  # CreateAcls
        31: (0, 3),  # DeleteAcls
        32: (0, 4),  # DescribeConfigs
        33: (0, 2),  # AlterConfigs
        34: (0, 2),  # AlterReplicaLogDirs
        35: (0, 4),  # DescribeLogDirs
        36: (0, 2),  # SaslAuthenticate
        37: (0, 3),  # CreatePartitions
        38: (0, 3),  # CreateDelegationToken
        39: (0, 2),  # RenewDelegationToken
        40: (0, 2),  # ExpireDelegationToken
        41: (0, 3),  # DescribeDelegationToken
        42: (0, 2),  # DeleteGroups
        43: (0, 2),  # ElectLeaders
        44: (0, 1),  # IncrementalAlterConfigs
        45: (0, 0),  # AlterPartitionReassignments
        46: (0, 0),  # ListPartitionReassignments
        47: (0, 0),  # OffsetDelete
        48: (0, 1),  # DescribeClientQuotas
        49: (0, 1),  # AlterClientQuotas
        50: (0, 0),  # DescribeUserScramCredentials
        51: (0, 0),  # AlterUserScramCredentials
        56: (0, 3),  # AlterPartition
        57: (0, 1),  # UpdateFeatures
        58: (0, 0),  # Envelope
        60: (0, 1),  # DescribeCluster
        61: (0, 0),  # DescribeProducers
        65: (0, 0),  # DescribeTransactions
        66: (0, 1),  # ListTransactions
        67: (0, 0),  # AllocateProducerIds
        68: (0, 0),  # ConsumerGroupHeartbeat
        69: (0, 0),  # ConsumerGroupDescribe
    },
)

#: Apache Kafka 4.3.0, KRaft mode. Produce begins at 0 although 4.x refuses 0 to 2, because
#: librdkafka before 2.8 needs the low end to choose compression (KAFKA-18659); kwire serves 0 to 2.
CEILING_4_3 = Ceiling(
    "4.3",
    {
        0: (0, 13),  # Produce
        1: (4, 18),  # Fetch
        2: (1, 11),  # ListOffsets
        3: (0, 13),  # Metadata
        8: (2, 10),  # OffsetCommit
        9: (1, 10),  # OffsetFetch
        10: (0, 6),  # FindCoordinator
        11: (0, 9),  # JoinGroup
        12: (0, 4),  # Heartbeat
        13: (0, 5),  # LeaveGroup
        14: (0, 5),  # SyncGroup
        15: (0, 6),  # DescribeGroups
        16: (0, 5),  # ListGroups
        17: (0, 1),  # SaslHandshake
        18: (0, 4),  # ApiVersions
        19: (2, 7),  # CreateTopics
        20: (1, 6),  # DeleteTopics
        21: (0, 2),  # DeleteRecords
        22: (0, 5),  # InitProducerId
        23: (2, 4),  # OffsetForLeaderEpoch
        24: (0, 5),  # AddPartitionsToTxn
        25: (0, 4),  # AddOffsetsToTxn
        26: (0, 5),  # EndTxn
        27: (1, 2),  # WriteTxnMarkers
        28: (0, 5),  # TxnOffsetCommit
        29: (1, 3),  # DescribeAcls
        30: (1, 3),  # CreateAcls
        31: (1, 3),  # DeleteAcls
        32: (1, 4),  # DescribeConfigs
        33: (0, 2),  # AlterConfigs
        34: (1, 2),  # AlterReplicaLogDirs
        35: (1, 5),  # DescribeLogDirs
        36: (0, 2),  # SaslAuthenticate
        37: (0, 3),  # CreatePartitions
        38: (1, 3),  # CreateDelegationToken
        39: (1, 2),  # RenewDelegationToken
        40: (1, 2),  # ExpireDelegationToken
        41: (1, 3),  # DescribeDelegationToken
        42: (0, 2),  # DeleteGroups
        43: (0, 2),  # ElectLeaders
        44: (0, 1),  # IncrementalAlterConfigs
        45: (0, 1),  # AlterPartitionReassignments
        46: (0, 0),  # ListPartitionReassignments
        47: (0, 0),  # OffsetDelete
        48: (0, 1),  # DescribeClientQuotas
        49: (0, 1),  # AlterClientQuotas
        50: (0, 0),  # DescribeUserScramCredentials
        51: (0, 0),  # AlterUserScramCredentials
        55: (0, 2),  # DescribeQuorum
        57: (0, 2),  # UpdateFeatures
        60: (0, 2),  # DescribeCluster
        61: (0, 0),  # DescribeProducers
        64: (0, 0),  # UnregisterBroker
        65: (0, 0),  # DescribeTransactions
        66: (0, 2),  # ListTransactions
        68: (0, 1),  # ConsumerGroupHeartbeat
        69: (0, 1),  # ConsumerGroupDescribe
        71: (0, 0),  # GetTelemetrySubscriptions, only if something takes clients' metrics
        72: (0, 0),  # PushTelemetry, likewise
        74: (0, 1),  # ListConfigResources
        75: (0, 0),  # DescribeTopicPartitions
        76: (1, 1),  # ShareGroupHeartbeat
        77: (1, 1),  # ShareGroupDescribe
        78: (1, 2),  # ShareFetch
        79: (1, 2),  # ShareAcknowledge
        80: (0, 1),  # AddRaftVoter
        81: (0, 0),  # RemoveRaftVoter
        83: (0, 0),  # InitializeShareGroupState
        84: (0, 0),  # ReadShareGroupState
        85: (0, 1),  # WriteShareGroupState
        86: (0, 0),  # DeleteShareGroupState
        87: (0, 1),  # ReadShareGroupStateSummary
        88: (0, 0),  # StreamsGroupHeartbeat
        89: (0, 0),  # StreamsGroupDescribe
        90: (0, 1),  # DescribeShareGroupOffsets
        91: (0, 0),  # AlterShareGroupOffsets
        92: (0, 0),  # DeleteShareGroupOffsets
    },
    {GROUP_VERSION: (0, 1), SHARE_VERSION: (0, 1), TRANSACTION_VERSION: (0, 2)},
)

#: Those of share groups, for clients and between brokers (KIP-932).
SHARE_GROUP_APIS = (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92)

#: Versions beyond the 3.9 ceiling that brokers serve if there is no Apache Kafka in the cluster.
WITHOUT_OTHERS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {key: CEILING_4_3.ranges[key] for key in (68, 69, *SHARE_GROUP_APIS)}
)

CEILINGS = {ceiling.name: ceiling for ceiling in (CEILING_3_9, CEILING_4_3)}
