"""ZooKeeper's requests and replies as records, in the order of the wire; pure.

Every frame consists of an int length and a message. The first message of a connection is a ConnectRequest, answered by
a ConnectResponse. After that, requests are a RequestHeader and a record of its opcode, and replies are a ReplyHeader
and, if its `err` is 0, a record. Source: zookeeper.jute and ZooDefs of ZooKeeper 3.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import Any, NamedTuple, TypeVar

from ..acl import Acl, AclId
from ..store import Stat
from .jute import (
    ACL_LIST,
    BOOLEAN,
    BUFFER,
    ID,
    INT,
    INT32,
    INT64,
    STAT_RECORD,
    STRING,
    STRINGS,
    JuteError,
    JuteReader,
    JuteType,
    vector,
)

R = TypeVar("R")

#: A MultiHeader, and the fixed part of a notification with its length: layouts below for code that handles very many
#: of them.
MULTI_HEADER = Struct(">i?i")
NOTIFICATION = Struct(">iiqiiii")
END_OF_MULTI = MULTI_HEADER.pack(-1, True, -1)

NOTIFICATION_XID, PING_XID, AUTH_XID, SET_WATCHES_XID = -1, -2, -4, -8


class OpCode(IntEnum):
    """The operation of a request. Source: ZooDefs.OpCode."""

    NOTIFICATION = 0
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    RECONFIG = 16
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    DELETE_CONTAINER = 20
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CREATE_SESSION = -10
    CLOSE_SESSION = -11
    ERROR = -1


class Code(IntEnum):
    """The reason that a request was refused. Source: KeeperException.Code."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    NO_WATCHER = -121
    RECONFIG_DISABLED = -123
    THROTTLED_OP = -127


class EventType(IntEnum):
    """The reason that a watch fired. Source: Watcher.Event.EventType."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


#: The `state` of every event: the client is connected. Source: KeeperState.SyncConnected.
SYNC_CONNECTED = 3


class ConnectRequest(NamedTuple):
    """Start a session, or continue one. Clients since 3.4 send one more byte, `readOnly`."""

    protocol_version: int
    last_zxid_seen: int
    timeout_ms: int
    session_id: int
    password: bytes | None


class ConnectResponse(NamedTuple):
    """The session; all fields 0 if it has ended. `readOnly` follows for clients that sent it."""

    protocol_version: int
    timeout_ms: int
    session_id: int
    password: bytes | None


class RequestHeader(NamedTuple):
    """The start of a request."""

    xid: int
    opcode: int


class ReplyHeader(NamedTuple):
    """The start of a reply or a notification."""

    xid: int
    zxid: int
    err: int


class CreateRequest(NamedTuple):
    """`flags` is a CreateMode; also of create2 and createContainer."""

    path: str | None
    data: bytes | None
    acl: Acl | None
    flags: int


class CreateTtlRequest(NamedTuple):
    """A create with a time to live."""

    path: str | None
    data: bytes | None
    acl: Acl | None
    flags: int
    ttl: int


class VersionRequest(NamedTuple):
    """DeleteRequest and CheckVersionRequest."""

    path: str | None
    version: int


class WatchingRequest(NamedTuple):
    """ExistsRequest, GetDataRequest, GetChildrenRequest and GetChildren2Request."""

    path: str | None
    watch: bool


class SetDataRequest(NamedTuple):
    """Replace the data of a node."""

    path: str | None
    data: bytes | None
    version: int


class PathRequest(NamedTuple):
    """GetACLRequest, SyncRequest, GetAllChildrenNumberRequest and GetEphemeralsRequest."""

    path: str | None


class SetAclRequest(NamedTuple):
    """Replace the access control list of a node."""

    path: str | None
    acl: Acl | None
    version: int


class SetWatchesRequest(NamedTuple):
    """Leave watches again after a reconnect, and fire those whose event was missed."""

    relative_zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]


class SetWatches2Request(NamedTuple):
    """The same, including persistent watches."""

    relative_zxid: int
    data: tuple[str, ...]
    exist: tuple[str, ...]
    child: tuple[str, ...]
    persistent: tuple[str, ...]
    persistent_recursive: tuple[str, ...]


class WatchTypeRequest(NamedTuple):
    """AddWatchRequest (`type` is a mode), CheckWatchesRequest and RemoveWatchesRequest."""

    path: str | None
    type: int


class AuthPacket(NamedTuple):
    """Present credentials."""

    type: int
    scheme: str | None
    auth: bytes | None


class TokenRecord(NamedTuple):
    """GetSASLRequest and SetSASLResponse."""

    token: bytes | None


class ReconfigRequest(NamedTuple):
    """Change the members of an ensemble."""

    joining: str | None
    leaving: str | None
    members: str | None
    config_id: int


class MultiHeader(NamedTuple):
    """Precedes each op of a multi and each result, and appears once more, with `done`, at the end."""

    type: int
    done: bool
    err: int


class PathReply(NamedTuple):
    """CreateResponse and SyncResponse."""

    path: str | None


class Create2Reply(NamedTuple):
    """The path and Stat of a created node."""

    path: str
    stat: Stat


class StatReply(NamedTuple):
    """ExistsResponse, SetDataResponse and SetACLResponse."""

    stat: Stat


class GetDataReply(NamedTuple):
    """Data and Stat."""

    data: bytes | None
    stat: Stat


class NamesReply(NamedTuple):
    """GetChildrenResponse and GetEphemeralsResponse."""

    names: tuple[str, ...]


class GetChildren2Reply(NamedTuple):
    """Names below a node and its Stat."""

    names: tuple[str, ...]
    stat: Stat


class GetAclReply(NamedTuple):
    """Access control list and Stat."""

    acl: Acl
    stat: Stat


class IntReply(NamedTuple):
    """ErrorResponse and GetAllChildrenNumberResponse."""

    value: int


class WhoAmIReply(NamedTuple):
    """Pairs of scheme and user name."""

    clients: tuple[AclId, ...]


class WatcherEvent(NamedTuple):
    """A notification."""

    type: int
    state: int
    path: str


LAYOUTS: dict[type, tuple[JuteType, ...]] = {
    ConnectRequest: (INT32, INT64, INT32, INT64, BUFFER),
    ConnectResponse: (INT32, INT32, INT64, BUFFER),
    RequestHeader: (INT32, INT32),
    ReplyHeader: (INT32, INT64, INT32),
    CreateRequest: (STRING, BUFFER, ACL_LIST, INT32),
    CreateTtlRequest: (STRING, BUFFER, ACL_LIST, INT32, INT64),
    VersionRequest: (STRING, INT32),
    WatchingRequest: (STRING, BOOLEAN),
    SetDataRequest: (STRING, BUFFER, INT32),
    PathRequest: (STRING,),
    SetAclRequest: (STRING, ACL_LIST, INT32),
    SetWatchesRequest: (INT64, STRINGS, STRINGS, STRINGS),
    SetWatches2Request: (INT64, STRINGS, STRINGS, STRINGS, STRINGS, STRINGS),
    WatchTypeRequest: (STRING, INT32),
    AuthPacket: (INT32, STRING, BUFFER),
    TokenRecord: (BUFFER,),
    ReconfigRequest: (STRING, STRING, STRING, INT64),
    MultiHeader: (INT32, BOOLEAN, INT32),
    PathReply: (STRING,),
    Create2Reply: (STRING, STAT_RECORD),
    StatReply: (STAT_RECORD,),
    GetDataReply: (BUFFER, STAT_RECORD),
    NamesReply: (STRINGS,),
    GetChildren2Reply: (STRINGS, STAT_RECORD),
    GetAclReply: (ACL_LIST, STAT_RECORD),
    IntReply: (INT32,),
    WhoAmIReply: (vector(ID),),
    WatcherEvent: (INT32, INT32, STRING),
}

READS = {record: tuple(field.read for field in fields) for record, fields in LAYOUTS.items()}
WRITES = {record: tuple(field.write for field in fields) for record, fields in LAYOUTS.items()}

REQUESTS: dict[int, type] = {
    OpCode.CREATE: CreateRequest,
    OpCode.CREATE2: CreateRequest,
    OpCode.CREATE_CONTAINER: CreateRequest,
    OpCode.CREATE_TTL: CreateTtlRequest,
    OpCode.DELETE: VersionRequest,
    OpCode.CHECK: VersionRequest,
    OpCode.EXISTS: WatchingRequest,
    OpCode.GET_DATA: WatchingRequest,
    OpCode.GET_CHILDREN: WatchingRequest,
    OpCode.GET_CHILDREN2: WatchingRequest,
    OpCode.SET_DATA: SetDataRequest,
    OpCode.GET_ACL: PathRequest,
    OpCode.SYNC: PathRequest,
    OpCode.GET_ALL_CHILDREN_NUMBER: PathRequest,
    OpCode.GET_EPHEMERALS: PathRequest,
    OpCode.SET_ACL: SetAclRequest,
    OpCode.ADD_WATCH: WatchTypeRequest,
    OpCode.CHECK_WATCHES: WatchTypeRequest,
    OpCode.REMOVE_WATCHES: WatchTypeRequest,
    OpCode.AUTH: AuthPacket,
    OpCode.SASL: TokenRecord,
    OpCode.RECONFIG: ReconfigRequest,
}

#: The record of a reply whose `err` is 0; for opcodes not listed here, the reply is only a header.
REPLIES: dict[int, type] = {
    OpCode.CREATE: PathReply,
    OpCode.CREATE2: Create2Reply,
    OpCode.CREATE_CONTAINER: Create2Reply,
    OpCode.EXISTS: StatReply,
    OpCode.SET_DATA: StatReply,
    OpCode.SET_ACL: StatReply,
    OpCode.GET_DATA: GetDataReply,
    OpCode.GET_CHILDREN: NamesReply,
    OpCode.GET_CHILDREN2: GetChildren2Reply,
    OpCode.GET_ACL: GetAclReply,
    OpCode.SYNC: PathReply,
    OpCode.GET_ALL_CHILDREN_NUMBER: IntReply,
    OpCode.GET_EPHEMERALS: NamesReply,
    OpCode.ADD_WATCH: IntReply,
    OpCode.WHO_AM_I: WhoAmIReply,
    OpCode.SASL: TokenRecord,
    OpCode.ERROR: IntReply,
}

MULTI_OPS = frozenset(
    {
        OpCode.CREATE,
        OpCode.CREATE2,
        OpCode.CREATE_CONTAINER,
        OpCode.CREATE_TTL,
        OpCode.DELETE,
        OpCode.SET_DATA,
        OpCode.CHECK,
    }
)
MULTI_READ_OPS = frozenset({OpCode.GET_DATA, OpCode.GET_CHILDREN})


#: The maximum number of ops in a multi, which are applied without interruption. A real server takes what a message can
#: hold; ops with the paths of real nodes are not more.
MAX_OPS = 8_000


class MultiOp(NamedTuple):
    """One op of a multi, or one of its results (`opcode` ERROR and an IntReply for a failed one)."""

    opcode: int
    record: Any


def decode(record: type[R], reader: JuteReader) -> R:
    """Read one record. Errors: JuteError."""
    return record(*[read(reader) for read in READS[record]])


def encode(*records: Any) -> bytes:
    """The concatenated bytes of records."""
    out = bytearray()
    for record in records:
        for write, value in zip(WRITES[type(record)], record, strict=True):
            write(out, value)
    return bytes(out)


def encode_notification(type_: EventType, path: str) -> bytes:
    """The frame of a ReplyHeader and a WatcherEvent, which one change may cause in great number."""
    raw = path.encode(errors="replace")
    size = len(raw)
    return (
        NOTIFICATION.pack(
            NOTIFICATION.size - 4 + size, NOTIFICATION_XID, -1, 0, type_, SYNC_CONNECTED, size
        )
        + raw
    )


def decode_multi(reader: JuteReader, allowed: frozenset[OpCode]) -> Iterator[MultiOp]:
    """The ops of a multi, each read when it is taken.

    Errors: JuteError, also for too many, and for an op that it may not contain.
    """
    count = 0
    while True:
        opcode, done, _ = MULTI_HEADER.unpack(reader.take(MULTI_HEADER.size))
        if done:
            return
        if opcode not in allowed:
            raise JuteError(f"a multi with an op of type {opcode}")
        if count == MAX_OPS:
            raise JuteError(f"a multi with more than {MAX_OPS} ops")
        count += 1
        yield MultiOp(opcode, decode(REQUESTS[opcode], reader))


def encode_multi(results: Iterable[MultiOp], max_bytes: int | None = None) -> bytes:
    """The results of a multi; a record may be encoded already.

    Errors: JuteError if the reply becomes longer than `max_bytes`; no further results are taken then.
    """
    out = bytearray()
    for opcode, record in results:
        err = record.value if opcode == OpCode.ERROR else 0
        out += MULTI_HEADER.pack(opcode, False, err)
        if record is not None:
            out += record if isinstance(record, bytes) else encode(record)
        if max_bytes is not None and len(out) > max_bytes:
            raise JuteError(f"a reply of more than {max_bytes} bytes")
    return bytes(out) + END_OF_MULTI


def encode_failed_multi(succeeded: int, code: Code, rest: int) -> bytes:
    """The results of a multi of which an op failed: none was executed, and that one has the error's code."""

    def error(code: Code) -> bytes:
        return MULTI_HEADER.pack(OpCode.ERROR, False, code) + INT.pack(code)

    return (
        error(Code.OK) * succeeded
        + error(code)
        + error(Code.RUNTIME_INCONSISTENCY) * rest
        + END_OF_MULTI
    )
