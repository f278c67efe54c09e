"""Errors on the wire: the protocol's error codes, and the exceptions of the codecs.

An ErrorCode is a value sent in a reply. A WireError means that the peer (or, for EncodeError, the caller) broke the
protocol; it is never sent.
"""

from __future__ import annotations

from enum import IntEnum

RETRIABLE = True


class ErrorCode(IntEnum):
    """The protocol's error codes, each with whether a client may simply try again.

    Source: org.apache.kafka.common.protocol.Errors of 3.9.2 and 4.3.0.
    """

    retriable: bool

    def __new__(cls, code: int, retriable: bool = False) -> ErrorCode:
        member = int.__new__(cls, code)
        member._value_ = code
        member.retriable = retriable
        return member

    UNKNOWN_SERVER_ERROR = -1
    """The broker met an error that has no specific code."""
    NONE = 0
    """No error."""
    OFFSET_OUT_OF_RANGE = 1
    """The offset is outside the partition's log."""
    CORRUPT_MESSAGE = 2, RETRIABLE
    """A batch failed its CRC check, has no records, or is otherwise damaged."""
    UNKNOWN_TOPIC_OR_PARTITION = 3, RETRIABLE
    """This broker does not host the topic or partition, or it does not exist."""
    INVALID_FETCH_SIZE = 4
    """The fetch requested an unusable number of bytes."""
    LEADER_NOT_AVAILABLE = 5, RETRIABLE
    """The partition has no leader at the moment, as during an election."""
    NOT_LEADER_OR_FOLLOWER = 6, RETRIABLE
    """This broker is not the leader (or, for a fetch, not a replica) of the partition."""
    REQUEST_TIMED_OUT = 7, RETRIABLE
    """The request was not completed within its timeout."""
    BROKER_NOT_AVAILABLE = 8
    """The requested broker is not alive."""
    REPLICA_NOT_AVAILABLE = 9, RETRIABLE
    """The requested replica is not on this broker."""
    MESSAGE_TOO_LARGE = 10
    """A batch exceeds max.message.bytes."""
    STALE_CONTROLLER_EPOCH = 11
    """The request carries a controller epoch older than the broker's."""
    OFFSET_METADATA_TOO_LARGE = 12
    """The metadata string of a committed offset exceeds offset.metadata.max.bytes."""
    NETWORK_EXCEPTION = 13, RETRIABLE
    """The connection broke before the answer came; only clients produce this code."""
    COORDINATOR_LOAD_IN_PROGRESS = 14, RETRIABLE
    """The coordinator is still reading its partition and cannot answer yet."""
    COORDINATOR_NOT_AVAILABLE = 15, RETRIABLE
    """There is no coordinator at the moment, or its internal topic does not exist yet."""
    NOT_COORDINATOR = 16, RETRIABLE
    """This broker is not the coordinator of the group or transactional id."""
    INVALID_TOPIC_EXCEPTION = 17
    """The topic name is not allowed, or the operation is refused for an internal topic."""
    RECORD_LIST_TOO_LARGE = 18
    """The set of records exceeds the segment size."""
    NOT_ENOUGH_REPLICAS = 19, RETRIABLE
    """Fewer replicas are in sync than min.insync.replicas requires."""
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, RETRIABLE
    """The records were appended, but then too few replicas were in sync."""
    INVALID_REQUIRED_ACKS = 21
    """acks is neither 0, 1 nor -1."""
    ILLEGAL_GENERATION = 22
    """The generation is not the group's current one."""
    INCONSISTENT_GROUP_PROTOCOL = 23
    """The member and the group have no protocol in common."""
    INVALID_GROUP_ID = 24
    """The group id is not allowed."""
    UNKNOWN_MEMBER_ID = 25
    """The group does not know this member id."""
    INVALID_SESSION_TIMEOUT = 26
    """The session timeout lies outside the broker's bounds."""
    REBALANCE_IN_PROGRESS = 27
    """The group is rebalancing; the member has to join again."""
    INVALID_COMMIT_OFFSET_SIZE = 28
    """The offset commit is larger than a record may be."""
    TOPIC_AUTHORIZATION_FAILED = 29
    """The principal may not do this with the topic."""
    GROUP_AUTHORIZATION_FAILED = 30
    """The principal may not do this with the group."""
    CLUSTER_AUTHORIZATION_FAILED = 31
    """The principal may not do this with the cluster."""
    INVALID_TIMESTAMP = 32
    """A record's timestamp is further from the broker's time than the topic allows."""
    UNSUPPORTED_SASL_MECHANISM = 33
    """The broker does not offer the SASL mechanism."""
    ILLEGAL_SASL_STATE = 34
    """The request does not fit the state of the SASL exchange."""
    UNSUPPORTED_VERSION = 35
    """The version of the API is not supported."""
    TOPIC_ALREADY_EXISTS = 36
    """A topic of that name exists."""
    INVALID_PARTITIONS = 37
    """The number of partitions is not allowed."""
    INVALID_REPLICATION_FACTOR = 38
    """The replication factor is below one or above the number of brokers."""
    INVALID_REPLICA_ASSIGNMENT = 39
    """The manual replica assignment is not valid."""
    INVALID_CONFIG = 40
    """A configuration name or value is not valid."""
    NOT_CONTROLLER = 41, RETRIABLE
    """This broker is not the controller."""
    INVALID_REQUEST = 42
    """The request contradicts itself or breaks the protocol."""
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    """The topic's message format does not support the request."""
    POLICY_VIOLATION = 44
    """A policy configured by the operator refused the request."""
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    """A producer's sequence number leaves a gap."""
    DUPLICATE_SEQUENCE_NUMBER = 46
    """A producer's sequence number was seen before, but not in the last five batches."""
    INVALID_PRODUCER_EPOCH = 47
    """The producer id is used with an old epoch."""
    INVALID_TXN_STATE = 48
    """The transaction is not in a state that allows the request."""
    INVALID_PRODUCER_ID_MAPPING = 49
    """The producer id does not belong to the transactional id."""
    INVALID_TRANSACTION_TIMEOUT = 50
    """The transaction timeout exceeds transaction.max.timeout.ms."""
    CONCURRENT_TRANSACTIONS = 51, RETRIABLE
    """Another operation on the same transaction is still in progress."""
    TRANSACTION_COORDINATOR_FENCED = 52
    """The transaction marker was sent by a coordinator that has been replaced."""
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    """The principal may not use the transactional id."""
    SECURITY_DISABLED = 54
    """Authorization is not enabled on this cluster."""
    OPERATION_NOT_ATTEMPTED = 55
    """The operation was not attempted, because another one in the same request failed."""
    KAFKA_STORAGE_ERROR = 56, RETRIABLE
    """Reading or writing the log directory failed."""
    LOG_DIR_NOT_FOUND = 57
    """The path is not among the broker's log directories."""
    SASL_AUTHENTICATION_FAILED = 58
    """SASL authentication failed."""
    UNKNOWN_PRODUCER_ID = 59
    """The log no longer contains any record of this producer id."""
    REASSIGNMENT_IN_PROGRESS = 60
    """A reassignment of the partition is in progress."""
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    """Delegation tokens are not enabled."""
    DELEGATION_TOKEN_NOT_FOUND = 62
    """There is no such delegation token."""
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    """The principal neither owns nor may renew the delegation token."""
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    """The connection's authentication does not allow delegation token requests."""
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    """The principal may not do this with the delegation token."""
    DELEGATION_TOKEN_EXPIRED = 66
    """The delegation token has expired."""
    INVALID_PRINCIPAL_TYPE = 67
    """The principal's type is not supported."""
    NON_EMPTY_GROUP = 68
    """The group still has members."""
    GROUP_ID_NOT_FOUND = 69
    """There is no such group."""
    FETCH_SESSION_ID_NOT_FOUND = 70, RETRIABLE
    """The fetch session is unknown, for instance because it was evicted."""
    INVALID_FETCH_SESSION_EPOCH = 71, RETRIABLE
    """The fetch session's epoch is not the expected one."""
    LISTENER_NOT_FOUND = 72, RETRIABLE
    """The leader has no listener with the same name as the one that received the request."""
    TOPIC_DELETION_DISABLED = 73
    """The deletion of topics is disabled."""
    FENCED_LEADER_EPOCH = 74, RETRIABLE
    """The leader epoch of the request is older than the broker's."""
    UNKNOWN_LEADER_EPOCH = 75, RETRIABLE
    """The leader epoch of the request is newer than the broker's."""
    UNSUPPORTED_COMPRESSION_TYPE = 76
    """The compression type needs a newer version of the API."""
    STALE_BROKER_EPOCH = 77
    """The broker epoch differs from the one that the controller knows."""
    OFFSET_NOT_AVAILABLE = 78, RETRIABLE
    """The leader has not yet caught up with its own high watermark after an election."""
    MEMBER_ID_REQUIRED = 79
    """The member has to join again with the member id in this response (KIP-394)."""
    PREFERRED_LEADER_NOT_AVAILABLE = 80, RETRIABLE
    """The preferred leader cannot be elected."""
    GROUP_MAX_SIZE_REACHED = 81
    """The group already has group.max.size members."""
    FENCED_INSTANCE_ID = 82
    """Another member now uses the same group.instance.id."""
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, RETRIABLE
    """No replica that is eligible as leader is available."""
    ELECTION_NOT_NEEDED = 84, RETRIABLE
    """The partition already has the leader that the election would choose."""
    NO_REASSIGNMENT_IN_PROGRESS = 85
    """No reassignment of the partition is in progress."""
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    """A member of the group is subscribed to the topic."""
    INVALID_RECORD = 87
    """A record is not valid; record_errors and error_message give the record and the reason."""
    UNSTABLE_OFFSET_COMMIT = 88, RETRIABLE
    """Some of the offsets belong to a transaction that is still open."""
    THROTTLING_QUOTA_EXCEEDED = 89, RETRIABLE
    """A quota was exceeded."""
    PRODUCER_FENCED = 90
    """A newer producer with the same transactional id has taken over."""
    RESOURCE_NOT_FOUND = 91
    """There is no such resource."""
    DUPLICATE_RESOURCE = 92
    """The resource appears twice."""
    UNACCEPTABLE_CREDENTIAL = 93
    """The credential does not meet the requirements."""
    INCONSISTENT_VOTER_SET = 94
    """The sender or receiver is not in the expected set of voters."""
    INVALID_UPDATE_VERSION = 95
    """The feature version is not valid."""
    FEATURE_UPDATE_FAILED = 96
    """The feature update failed."""
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    """The principal in a forwarded request cannot be read."""
    SNAPSHOT_NOT_FOUND = 98
    """There is no such snapshot."""
    POSITION_OUT_OF_RANGE = 99
    """The position lies outside the snapshot."""
    UNKNOWN_TOPIC_ID = 100, RETRIABLE
    """This broker does not know the topic id."""
    DUPLICATE_BROKER_REGISTRATION = 101
    """A live broker is already registered with the same id."""
    BROKER_ID_NOT_REGISTERED = 102
    """The broker id is not registered."""
    INCONSISTENT_TOPIC_ID = 103, RETRIABLE
    """The topic id in the log differs from the one in the request."""
    INCONSISTENT_CLUSTER_ID = 104
    """The cluster id is not this cluster's."""
    TRANSACTIONAL_ID_NOT_FOUND = 105
    """There is no such transactional id."""
    FETCH_SESSION_TOPIC_ID_ERROR = 106, RETRIABLE
    """The fetch session used topic ids and names inconsistently."""
    INELIGIBLE_REPLICA = 107
    """The replica may not join the in-sync replicas, for example because its broker is fenced."""
    NEW_LEADER_ELECTED = 108
    """The partition change made another replica the leader."""
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    """The offset is in tiered storage only."""
    FENCED_MEMBER_EPOCH = 110
    """The member's epoch is not the group's; it has to join again."""
    UNRELEASED_INSTANCE_ID = 111
    """Another member still holds the group.instance.id."""
    UNSUPPORTED_ASSIGNOR = 112
    """The group does not support the assignor."""
    STALE_MEMBER_EPOCH = 113
    """The member epoch is older than the current one."""
    MISMATCHED_ENDPOINT_TYPE = 114
    """The request went to the wrong kind of endpoint (broker or controller)."""
    UNSUPPORTED_ENDPOINT_TYPE = 115
    """The endpoint type is not supported."""
    UNKNOWN_CONTROLLER_ID = 116
    """There is no such controller id."""
    UNKNOWN_SUBSCRIPTION_ID = 117
    """The client's telemetry subscription id is outdated."""
    TELEMETRY_TOO_LARGE = 118
    """The telemetry exceeds telemetry.max.bytes."""
    INVALID_REGISTRATION = 119
    """The controller's registration is not valid."""
    TRANSACTION_ABORTABLE = 120
    """The transaction can now only be aborted (KIP-890)."""
    INVALID_RECORD_STATE = 121
    """The record is not in a state that allows the acknowledgement."""
    SHARE_SESSION_NOT_FOUND = 122, RETRIABLE
    """There is no such share session."""
    INVALID_SHARE_SESSION_EPOCH = 123, RETRIABLE
    """The share session's epoch is not the expected one."""
    FENCED_STATE_EPOCH = 124
    """The state epoch of the share coordinator is older than the current one."""
    INVALID_VOTER_KEY = 125
    """The voter's key does not match that of the receiver."""
    DUPLICATE_VOTER = 126
    """The voter is already in the set of voters."""
    VOTER_NOT_FOUND = 127
    """The voter is not in the set of voters."""
    INVALID_REGULAR_EXPRESSION = 128
    """The regular expression cannot be compiled."""
    REBOOTSTRAP_REQUIRED = 129
    """The client has to start again from its bootstrap servers (KIP-1102)."""
    STREAMS_INVALID_TOPOLOGY = 130
    """The Streams topology is not valid."""
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    """The Streams topology epoch is not valid."""
    STREAMS_TOPOLOGY_FENCED = 132
    """The Streams topology epoch is older than the group's."""
    SHARE_SESSION_LIMIT_REACHED = 133, RETRIABLE
    """The broker already holds the maximum number of share sessions."""


class WireError(Exception):
    """Bytes that break the protocol, or a message that cannot be encoded.

    Shape: `api` is the message's name, `path` the field (`topic_data[0].name`), `offset` the position
    in the buffer that the message was read from; "" or -1 where unknown.
    """

    def __init__(
        self, reason: str, *, api: str = "", version: int = -1, path: str = "", offset: int = -1
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.api = api
        self.version = version
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        where = self.api
        if self.version >= 0:
            where += f" v{self.version}"
        if self.path:
            where += f" {self.path}"
        if self.offset >= 0:
            where += f" at byte {self.offset}"
        return f"{where.strip()}: {self.reason}" if where else self.reason


class Truncated(WireError):
    """The bytes end before the message does."""


class BadLength(WireError):
    """A length or count is negative or larger than what remains, or bytes are left at the end.

    Also: null where it is not allowed, or a varint that does not end.
    """


class OtherProtocol(BadLength):
    """The peer answers in another protocol, whose first bytes would be an impossible size. Shape: `protocol` names it."""

    def __init__(self, protocol: str) -> None:
        super().__init__(f"the answer looks like {protocol}, not Kafka")
        self.protocol = protocol


class BadTag(WireError):
    """A tagged field is not allowed in this version or does not fill the size it states."""


class BadUtf8(WireError):
    """A string is not UTF-8."""


class BadVersion(WireError):
    """The message does not exist in this version, or the API is not known."""


class MessageTooLarge(WireError):
    """The message would take more memory than allowed once it is decoded."""


class EncodeError(WireError):
    """A value has the wrong type, is out of range, or cannot be carried by the version."""


class RecordError(WireError):
    """Record batches that cannot be read."""


class CorruptRecord(RecordError):
    """A batch or record contradicts itself or fails its CRC check."""


class UnsupportedCodec(RecordError):
    """The batch names a compression codec that its magic does not support or that is not installed."""


class TooLarge(RecordError):
    """The batch decompresses to more bytes than are allowed."""
