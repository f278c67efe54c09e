"""The rows of docs/kips.md: the KIPs that concern brokers or the protocol, and the proof that they work.

A row names the API versions that a KIP introduced; its state follows from those that the handler table serves. If a KIP
has no API version of its own, the row names the test that shows it. The state is set by hand only if there is neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kwire.api import ApiKey, request_class
from kwire.schema import schema_of

SUPPORTED, PARTIAL, WIRE_ONLY, NOTHING = "Supported", "Partial", "Wire only", "--"


class Kip(NamedTuple):
    """One row.

    Shape: `apis` has APIs, each with a version ("Fetch 12"), separated by commas; `test` is a file below tests/;
    `missing` names the omitted part, and turns Supported into Partial; `stated` overrides the state that follows from
    the rest.
    """

    numbers: str
    what: str
    apis: str = ""
    test: str = ""
    note: str = ""
    missing: str = ""
    stated: str = ""

    def versions(self) -> list[tuple[ApiKey, int]]:
        """The API versions that it introduced."""
        words = [pair.split() for pair in self.apis.split(",") if pair.strip()]
        return [(API_KEYS[name], int(version)) for name, version in words]

    def state(self, served: Mapping[int, range]) -> str:
        """One of the four states; `served` has the versions of each API under any ceiling."""
        if self.stated:
            return self.stated
        brought = self.versions()
        if not brought:
            return PARTIAL if self.missing else SUPPORTED
        there = [version in served.get(key, range(0)) for key, version in brought]
        if all(there):
            return PARTIAL if self.missing else SUPPORTED
        return PARTIAL if any(there) else WIRE_ONLY

    def cells(self, served: Mapping[int, range]) -> list[str]:
        """The row of the page."""
        notes = [self.note] if self.note else []
        if self.missing:
            notes.append(f"missing: {self.missing}")
        state = self.state(served)
        if state == PARTIAL and not self.missing:
            absent = [n for n in self.apis.split(",") if not _is_served(n, served)]
            notes.append(f"missing: {', '.join(name.strip() for name in absent)}")
        shown = [self.apis] if self.apis else []
        if self.test:
            shown.append(f"[{self.test.rpartition('/')[2]}](../tests/{self.test})")
        return [self.numbers, self.what, state, ", ".join(shown), "; ".join(notes)]


API_KEYS = {"".join(word.capitalize() for word in key.name.split("_")): key for key in ApiKey}


def _is_served(word: str, served: Mapping[int, range]) -> bool:
    name, version = word.split()
    return int(version) in served.get(API_KEYS[name], range(0))


def kips_page(served: Mapping[int, range]) -> str:
    """The page; `served` has the versions of each API under any ceiling."""
    lines = [
        "# KIPs\n",
        "This page lists the Kafka Improvement Proposals that concern brokers or the protocol, and kwire's support for each.\n",
        f"- **{SUPPORTED}**: works as the KIP describes.",
        f"- **{PARTIAL}**: works in part; the last column says what is missing.",
        f"- **{WIRE_ONLY}**: the library `kwire` reads and writes the messages and fields, but the broker does not use them.",
        f"- **{NOTHING}**: not supported.\n",
        "The column *shown by* names the API versions that a KIP introduced. Its state follows from how many of them are",
        "[served](apis.md), with either store: all, some or none. If a KIP has no API versions of its own, the column names the",
        "test that shows it.",
    ]
    for title, rows in SECTIONS.items():
        lines += [
            f"\n## {title}\n",
            "| KIP | what | state | shown by | note |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [f"| {' | '.join(row.cells(served))} |" for row in rows]
    return "\n".join(lines)


def unknown_versions(rows: Iterable[Kip]) -> list[str]:
    """API versions that rows name and the wire library does not have."""
    return [
        f"KIP-{row.numbers}: {key.name} {version}"
        for row in rows
        for key, version in row.versions()
        if version not in schema_of(request_class(key)).versions
    ]


SECTIONS: dict[str, tuple[Kip, ...]] = {
    "Records and logs": (
        Kip("31, 32", "relative offsets, timestamps (magic 1)", "Produce 2, Fetch 2"),
        Kip("33", "index by time", test="log/test_read.py"),
        Kip(
            "57",
            "lz4 frames with the correct checksum",
            test="records/test_compression.py",
            note="also the incorrect checksum that magic 0 requires",
        ),
        Kip(
            "58, 354",
            "min.compaction.lag.ms, max.compaction.lag.ms",
            test="log/cleaner/test_log_cleaner.py",
        ),
        Kip("71", "compact and delete", test="log/cleaner/test_log_cleaner.py"),
        Kip("82", "record headers", "Produce 3, Fetch 4"),
        Kip(
            "98",
            "exactly once",
            "Produce 3, Fetch 4, InitProducerId 0, AddPartitionsToTxn 0, AddOffsetsToTxn 0, "
            "EndTxn 0, WriteTxnMarkers 0, TxnOffsetCommit 0",
            "e2e/test_cluster_transactions.py",
        ),
        Kip(
            "101, 279",
            "leader epochs",
            "OffsetForLeaderEpoch 0, OffsetForLeaderEpoch 1",
            "replication/test_fetcher.py",
        ),
        Kip("106", "no unclean election by default", test="controller/test_cluster.py"),
        Kip("107", "DeleteRecords", "DeleteRecords 0"),
        Kip("110", "zstd", "Produce 7, Fetch 10"),
        Kip(
            "112, 113",
            "several log directories",
            "DescribeLogDirs 0, AlterReplicaLogDirs 1",
            "replication/test_log_dir_moves.py",
        ),
        Kip("360", "producers recover after UNKNOWN_PRODUCER_ID", "InitProducerId 3"),
        Kip("390", "compression levels", test="config/test_broker_config.py"),
        Kip("405", "tiered storage", stated=WIRE_ONLY),
        Kip("467", "errors for single records", "Produce 8"),
        Kip(
            "534",
            "delete horizon of tombstones and markers",
            test="log/cleaner/test_log_cleaner.py",
        ),
        Kip("704", "recovery after an unclean election", "LeaderAndIsr 6, AlterPartition 1"),
        Kip(
            "679",
            "idempotent producers as the default",
            test="handlers/test_producers.py",
        ),
        Kip(
            "730",
            "blocks of producer ids",
            "AllocateProducerIds 0",
            note="kwire brokers take theirs from the coordination store",
        ),
        Kip("841", "stopping brokers do not rejoin the ISR", test="controller/test_cluster.py"),
        Kip("858", "failing log directories in KRaft", "AssignReplicasToDirs 0"),
        Kip(
            "890",
            "safer transactions",
            "AddPartitionsToTxn 4, Produce 12, EndTxn 5, TxnOffsetCommit 5",
            note="with the embedded store, the second version of the protocol; with ZooKeeper, partitions are verified as in 3.9",
        ),
        Kip("937", "bounds of timestamps", test="log/test_append.py"),
        Kip("939", "two-phase commit", stated=WIRE_ONLY),
        Kip("966", "eligible leader replicas", stated=WIRE_ONLY),
        Kip("1228", "the transaction's version in WriteTxnMarkers", "WriteTxnMarkers 2"),
    ),
    "Fetching and producing": (
        Kip("35", "ApiVersions", "ApiVersions 0"),
        Kip("72", "limit on requests in memory", test="net/test_frame_memory.py", note="always on"),
        Kip("74", "limit on the size of a Fetch response", "Fetch 3"),
        Kip("79", "ListOffsets by time", "ListOffsets 1"),
        Kip("207", "no latest offset until a new leader knows its high watermark", "ListOffsets 5"),
        Kip("227", "incremental fetch sessions", "Fetch 7"),
        Kip("320", "fencing by leader epoch", "Fetch 9, ListOffsets 4, OffsetForLeaderEpoch 2"),
        Kip("392", "fetch from the nearest replica", "Fetch 11"),
        Kip("482", "flexible versions, tagged fields", "ApiVersions 3, Produce 9, Fetch 12"),
        Kip("511", "name and version of the client software", "ApiVersions 3"),
        Kip(
            "516", "topic ids", "Metadata 10, CreateTopics 7, DeleteTopics 6, Fetch 13, Produce 13"
        ),
        Kip("734", "offset of the largest timestamp", "ListOffsets 7"),
        Kip(
            "896",
            "removal of old versions",
            stated=NOTHING,
            note="old versions are served on purpose ([decision 8](decisions/0008-ceilings.md))",
        ),
        Kip("903", "fencing of stale replicas", "Fetch 15"),
        Kip("951", "new leader in Produce and Fetch errors", "Produce 10, Fetch 16"),
        Kip(
            "1005, 1075, 1023",
            "ListOffsets and tiered storage",
            "ListOffsets 9, ListOffsets 10, ListOffsets 11",
            note="there is never a latest tiered offset",
        ),
        Kip(
            "1166",
            "high watermarks of followers",
            "Fetch 18",
            missing="earlier responses to followers (there are none with the embedded store)",
        ),
    ),
    "Groups": (
        Kip("62", "rebalance timeout", "JoinGroup 1"),
        Kip("134", "delay of the first rebalance", test="coordinator/test_join_group.py"),
        Kip("211", "expiry of offsets", test="coordinator/test_offsets.py"),
        Kip(
            "222, 229",
            "listing, describing and deleting groups",
            "ListGroups 0, DescribeGroups 0, DeleteGroups 0",
        ),
        Kip("345", "static members", "JoinGroup 5, LeaveGroup 3"),
        Kip("394", "member id required", "JoinGroup 4"),
        Kip("429", "cooperative rebalancing", test="e2e/test_confluent_groups.py"),
        Kip("447", "offsets in transactions", "TxnOffsetCommit 3, OffsetFetch 7"),
        Kip("496", "OffsetDelete", "OffsetDelete 0"),
        Kip("518", "groups by state", "ListGroups 4"),
        Kip("559", "protocol in SyncGroup", "JoinGroup 7, SyncGroup 5"),
        Kip("699", "several keys in FindCoordinator", "FindCoordinator 4"),
        Kip("709", "several groups in OffsetFetch", "OffsetFetch 8"),
        Kip("800", "reasons to join and leave", "JoinGroup 8, LeaveGroup 5"),
        Kip("814", "static leaders skip the assignment", "JoinGroup 9"),
        Kip(
            "848",
            "the consumer group protocol",
            "ConsumerGroupHeartbeat 0, ConsumerGroupDescribe 0, OffsetCommit 10, OffsetFetch 10",
            test="e2e/test_consumer_protocol.py",
            note="with ZooKeeper only if all brokers are kwire",
        ),
        Kip("1082", "member ids made by clients", "ConsumerGroupHeartbeat 1"),
        Kip("1263", "an interval between target assignments", "ConsumerGroupHeartbeat 1"),
        Kip("1101", "a hash of the topics of a consumer group", apis="ConsumerGroupHeartbeat 1"),
        Kip(
            "1251",
            "epochs of single partitions in consumer groups",
            apis="ConsumerGroupHeartbeat 1",
        ),
        Kip(
            "932",
            "share groups",
            "ShareGroupHeartbeat 1, ShareFetch 1, ShareAcknowledge 1, WriteShareGroupState 1",
            test="e2e/test_share_groups.py",
            note="with ZooKeeper only if all brokers are kwire",
        ),
        Kip("1206", "exact limits of records in share groups", "ShareFetch 2"),
        Kip("1222", "renewed locks in share groups", "ShareFetch 2, ShareAcknowledge 2"),
        Kip(
            "1043",
            "groups of all types in the tools",
            "DescribeGroups 6",
            missing="streams groups",
        ),
        Kip("1071", "streams groups", "StreamsGroupHeartbeat 0"),
    ),
    "Topics, configs, administration": (
        Kip(
            "4",
            "CreateTopics, DeleteTopics, Metadata",
            "CreateTopics 0, DeleteTopics 0, Metadata 1",
        ),
        Kip("36", "replicas by rack", test="controller/test_assignment.py"),
        Kip(
            "73",
            "replication quotas",
            test="replication/test_replication_quota.py",
        ),
        Kip(
            "133, 339",
            "describing and changing configs",
            "DescribeConfigs 0, AlterConfigs 0, IncrementalAlterConfigs 0",
            note="with the embedded store, also of groups and client metrics",
        ),
        Kip("195", "CreatePartitions", "CreatePartitions 0"),
        Kip(
            "226",
            "broker configs at run time",
            "DescribeConfigs 1",
            missing="listeners, connection limits",
        ),
        Kip("322", "an error for disabled deletion", "DeleteTopics 3"),
        Kip("412", "log levels at run time", "IncrementalAlterConfigs 1"),
        Kip(
            "430",
            "authorized operations",
            "Metadata 8, DescribeGroups 3",
        ),
        Kip("464, 525", "defaults and configs in CreateTopics", "CreateTopics 4, CreateTopics 5"),
        Kip(
            "569",
            "documentation in DescribeConfigs",
            "DescribeConfigs 3",
            note="with kwire's own texts",
        ),
        Kip(
            "584, 778",
            "features",
            "ApiVersions 3, UpdateFeatures 0, UpdateFeatures 1",
            note="`transaction.version` with the embedded store",
        ),
        Kip(
            "664",
            "describing producers and transactions",
            "DescribeProducers 0, DescribeTransactions 0, ListTransactions 0",
        ),
        Kip("700", "DescribeCluster", "DescribeCluster 0"),
        Kip(
            "714",
            "client metrics",
            "GetTelemetrySubscriptions 0, PushTelemetry 0",
            note="with `--http`, the embedded store and `kwire[telemetry]`; no histograms",
        ),
        Kip(
            "784, 827",
            "errors and sizes in DescribeLogDirs",
            "DescribeLogDirs 3, DescribeLogDirs 4",
        ),
        Kip(
            "919",
            "clients that connect to controllers",
            "DescribeCluster 1",
            missing="endpoints of controllers",
        ),
        Kip(
            "966",
            "DescribeTopicPartitions",
            "DescribeTopicPartitions 0",
            note="without eligible leader replicas",
        ),
        Kip(
            "994, 1152",
            "filters in ListTransactions",
            "ListTransactions 1, ListTransactions 2",
            note="the size of patterns is limited",
        ),
        Kip(
            "1066",
            "cordoned log directories",
            "DescribeLogDirs 5",
            missing="`cordoned.log.dirs`; no directory is ever cordoned",
        ),
        Kip(
            "1073, 1102, 1142",
            "fenced brokers, errors in Metadata, ListConfigResources",
            "DescribeCluster 2, Metadata 13, ListConfigResources 1",
        ),
    ),
    "Security and quotas": (
        Kip(
            "43, 152, 368",
            "SASL handshake, authentication, reauthentication",
            "SaslHandshake 0, SaslAuthenticate 0, SaslAuthenticate 1",
        ),
        Kip(
            "255, 342, 768",
            "OAUTHBEARER: tokens, extensions, key sets",
            test="security/test_oauthbearer.py",
        ),
        Kip(
            "651",
            "keys and certificates as PEM",
            test="security/tls/test_stores.py",
        ),
        Kip("48, 373", "delegation tokens", "CreateDelegationToken 1, CreateDelegationToken 3"),
        Kip(
            "11, 140, 290",
            "ACLs",
            "DescribeAcls 0, CreateAcls 0, DeleteAcls 0",
            note="without authorizer.class.name, the response is SECURITY_DISABLED",
        ),
        Kip(
            "13, 55, 124",
            "quotas of bytes and of request time, by user and client id",
            test="quotas/test_clients.py",
            missing="ClientQuotaCallback (KIP-257)",
        ),
        Kip(
            "219",
            "throttled clients get their response at once, and are then muted",
            test="net/test_throttling.py",
        ),
        Kip("546", "client quotas", "DescribeClientQuotas 0, AlterClientQuotas 0"),
        Kip("554", "SCRAM users", "DescribeUserScramCredentials 0, AlterUserScramCredentials 0"),
        Kip(
            "599",
            "quota on topic changes",
            "CreateTopics 6, DeleteTopics 5, CreatePartitions 3",
            test="handlers/test_mutation_quota.py",
            missing="topics that are created automatically",
        ),
        Kip(
            "402, 612",
            "limit on the rate of new connections",
            test="net/test_throttling.py",
        ),
    ),
    "Several brokers": (
        Kip("183, 460", "electing leaders", "ElectLeaders 0, ElectLeaders 1"),
        Kip(
            "380",
            "broker epochs",
            "LeaderAndIsr 2, StopReplica 1, UpdateMetadata 5, ControlledShutdown 2",
        ),
        Kip("455", "reassignments", "AlterPartitionReassignments 0, ListPartitionReassignments 0"),
        Kip("497", "AlterPartition", "AlterPartition 0"),
        Kip("570", "leader epochs in StopReplica", "StopReplica 3"),
        Kip("590", "forwarding to the controller", "Envelope 0"),
        Kip(
            "595, 630, 631, 836, 853, 996",
            "KRaft",
            "Vote 0, FetchSnapshot 0, BrokerRegistration 0, DescribeQuorum 0",
        ),
        Kip("866", "migration from ZooKeeper to KRaft", stated=WIRE_ONLY),
    ),
}
