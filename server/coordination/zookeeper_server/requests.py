"""The effect of each request on the tree; pure.

A handler takes the call and the request's record (or the reader positioned after the header, for requests of many parts)
and returns the body of the reply. That of a request of many parts is a generator: it yields after each step, in which it
is sent a new call, and returns the body at the end. Other clients' requests are handled between the steps.
Errors: StoreError, which becomes the `err` of the reply (`code_of`); JuteError for an unreadable record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..acl import ADMIN, ANYONE, CREATE, OPEN, READ, AclId, ZnodeAclEntry
from ..store import (
    BadVersion,
    Check,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    OpResult,
    SetData,
    Stat,
    StoreError,
)
from ..tree import CONTAINER, Applied, CreateNode, Node, SetAcl, TreeOp
from . import served_tree
from .access import (
    SPECIAL_PATHS,
    AccessRefused,
    check_acl,
    expand_acl,
    hide_passwords,
    user_name,
    validate_path,
)
from .jute import INT32, INT64, STAT_RECORD, STRING, STRINGS, JuteError, JuteReader
from .records import (
    END_OF_MULTI,
    MULTI_HEADER,
    MULTI_OPS,
    MULTI_READ_OPS,
    Code,
    CreateRequest,
    CreateTtlRequest,
    EventType,
    GetAclReply,
    GetDataReply,
    IntReply,
    MultiOp,
    NamesReply,
    OpCode,
    PathReply,
    PathRequest,
    SetAclRequest,
    SetDataRequest,
    StatReply,
    VersionRequest,
    WatchingRequest,
    WatchTypeRequest,
    WhoAmIReply,
    decode_multi,
    encode,
    encode_failed_multi,
    encode_multi,
    encode_notification,
)
from .watches import WATCH_BYTES, WatchMode, cost_of

if TYPE_CHECKING:
    from .connection import Effects, Now, ZookeeperConnection
    from .served_tree import ServedTree

ERROR_CODES: dict[type[StoreError], Code] = {
    NoNode: Code.NO_NODE,
    NodeExists: Code.NODE_EXISTS,
    BadVersion: Code.BAD_VERSION,
    NotEmpty: Code.NOT_EMPTY,
    NoChildrenForEphemerals: Code.NO_CHILDREN_FOR_EPHEMERALS,
}
#: CreateMode: flags -> (ephemeral, sequential); the others have a time to live or do not exist.
CREATE_MODES = {
    0: (False, False),
    1: (True, False),
    2: (False, True),
    3: (True, True),
    4: (False, False),
}
CREATE_WITH_TTL = frozenset({5, 6})
#: The longest reply to a multiRead, which may name the same large node again and again: what Apache Kafka's clients
#: accept (their jute.maxbuffer). A longer one fails as it would in ZooKeeper's client.
MAX_MULTI_READ_BYTES = 4 << 20
#: The size of a step of a request: ops of a multi and bytes of its message, or paths of watches.
OPS_IN_STEP = 1000
BYTES_IN_STEP = 100_000
WATCHES_IN_STEP = 2000
#: The watches of a SetWatches, by the event that they may have missed.
SET_DATA, SET_EXIST, SET_CHILD = "data", "exist", "child"
#: WatcherType of RemoveWatches.
CHILDREN, DATA, ANY = 1, 2, 3


class Call(NamedTuple):
    """A request being handled, with everything that a handler may use and change."""

    served: ServedTree
    connection: ZookeeperConnection
    opcode: int
    now: Now
    effects: Effects


#: The steps of a request of many parts; each is sent a new call.
Steps = Generator[None, Call, bytes]


def code_of(error: StoreError) -> Code:
    """The error code for a client."""
    return error.code if isinstance(error, AccessRefused) else ERROR_CODES[type(error)]


def own_node(path: str) -> Node:
    """One of ZooKeeper's own nodes."""
    node = Node(b"", 0, 0)
    if path == "/zookeeper/config":
        node.acl = (ZnodeAclEntry(READ, ANYONE),)
        node.aversion = -1
    return node


# Writes


def write(call: Call, ops: Iterable[TreeOp]) -> Applied:
    """Apply a transaction for the call's session. Errors: StoreError."""
    served = call.served
    ids = call.connection.ids

    def guard(node: Node, permission: int, path: str) -> None:
        check_acl(node.acl, permission, ids)
        if permission == CREATE:
            validate_path(path)

    try:
        applied = served.tree.apply(ops, call.connection.session_id, call.now.wall_ms, guard)
    except StoreError:
        served.tree.zxid += 1  # a failed write also uses up a number
        raise
    served.applied(applied, call.effects)
    return applied


def tree_op(call: Call, opcode: int, record: Any) -> TreeOp:
    """The tree's form of an op. Errors: AccessRefused, if the request is invalid regardless of the tree."""
    if isinstance(record, (CreateRequest, CreateTtlRequest)):
        return create_op(call, opcode, record)
    if opcode == OpCode.DELETE:
        if not record.path or "/" not in record.path or "\0" in record.path:
            raise AccessRefused(Code.BAD_ARGUMENTS)
        if record.path in SPECIAL_PATHS:
            raise AccessRefused(Code.BAD_ARGUMENTS)
        return Delete(record.path, record.version)
    path = validate_path(record.path)
    if isinstance(record, SetDataRequest):
        return SetData(path, record.data, record.version)
    if isinstance(record, SetAclRequest):
        acl = expand_acl(record.acl, call.connection.ids)
        return SetAcl(path, acl, record.version)
    return Check(path, record.version)


def create_op(call: Call, opcode: int, record: CreateRequest | CreateTtlRequest) -> TreeOp:
    """The tree's form of a create. Errors: AccessRefused."""
    if isinstance(record, CreateTtlRequest) or record.flags in CREATE_WITH_TTL:
        raise AccessRefused(Code.UNIMPLEMENTED)
    if record.flags not in CREATE_MODES:
        raise AccessRefused(Code.BAD_ARGUMENTS)
    ephemeral, sequential = CREATE_MODES[record.flags]
    path = record.path
    if path is None or "/" not in path or "\0" in path:
        raise AccessRefused(Code.BAD_ARGUMENTS)
    acl = expand_acl(record.acl, call.connection.ids)
    owner = 0
    if opcode == OpCode.CREATE_CONTAINER:
        owner = CONTAINER
    elif ephemeral:
        owner = call.connection.session_id
    return CreateNode(path, record.data, owner, sequential, acl)


def do_write(call: Call, record: Any) -> bytes:
    """create, create2, createContainer, createTTL, delete, setData, setACL."""

    def ops() -> Iterator[TreeOp]:
        yield tree_op(call, call.opcode, record)

    applied = write(call, ops())
    out = bytearray()
    write_result(out, call.opcode, applied.results[0], applied.stats[0])
    return bytes(out)


def write_result(out: bytearray, opcode: int, result: OpResult, stat: Stat | None) -> None:
    """The record that reports the result of one op, if there is one."""
    if isinstance(result, str):
        STRING.write(out, result)
        if opcode == OpCode.CREATE:
            return
    if stat is not None:
        STAT_RECORD.write(out, stat)


def multi_ops(reader: JuteReader, allowed: frozenset[OpCode]) -> Iterator[list[MultiOp]]:
    """The ops of a multi, as many at a time as are handled in one step. Errors: JuteError."""
    ops: list[MultiOp] = []
    end = reader.position + BYTES_IN_STEP
    for op in decode_multi(reader, allowed):
        ops.append(op)
        if len(ops) == OPS_IN_STEP or reader.position >= end:
            yield ops
            ops, end = [], reader.position + BYTES_IN_STEP
    yield ops


def multi(call: Call, reader: JuteReader) -> Steps:
    """Apply all ops, or none. In that case each result is an error, and the first failed op has its own.

    The ops are read in steps and then applied in one, so that no other request sees a part of their effects.
    """
    opcodes: list[int] = []
    ops: list[TreeOp] = []
    invalid: StoreError | None = None  # of the op after the last in `ops`
    for some in multi_ops(reader, MULTI_OPS):
        if opcodes:
            call = yield
        opcodes += [op.opcode for op in some]
        try:
            for opcode, record in some if invalid is None else ():
                ops.append(tree_op(call, opcode, record))
        except StoreError as error:
            invalid = error

    def valid_ops() -> Iterator[TreeOp]:
        yield from ops
        if invalid is not None:
            raise invalid

    if len(ops) >= OPS_IN_STEP:
        call = yield
    try:
        applied = write(call, valid_ops())
    except StoreError as error:
        begun = len(ops) if error is invalid else error.index
        return encode_failed_multi(begun, code_of(error), len(opcodes) - begun - 1)
    out = bytearray()
    for opcode, result, stat in zip(opcodes, applied.results, applied.stats, strict=True):
        shown = OpCode.CREATE2 if opcode == OpCode.CREATE_CONTAINER else opcode
        out += MULTI_HEADER.pack(shown, False, 0)
        write_result(out, opcode, result, stat)
    return bytes(out) + END_OF_MULTI


def check(call: Call, record: VersionRequest) -> bytes:
    """A check outside of a multi, which no client library sends; uses up a number like a write."""
    do_write(call, record)
    return b""


def reconfig(call: Call, _: object) -> bytes:
    """Refuse, since there is nothing to reconfigure."""
    call.served.tree.zxid += 1
    raise AccessRefused(Code.RECONFIG_DISABLED)


# Reads


def exists(call: Call, record: WatchingRequest) -> bytes:
    """The Stat; the watch is left even without a node."""
    if record.path is None:
        raise JuteError("a null path")
    if "\0" in record.path:
        raise AccessRefused(Code.BAD_ARGUMENTS)
    node = call.served.tree.nodes.get(record.path or "/")
    if node is not None:
        check_acl(node.acl, READ, call.connection.ids)
    if record.watch:
        call.served.watch(call.served.data_watches, record.path, call.connection)
    if node is None:
        raise NoNode(record.path, "no node")
    return encode(StatReply(node.stat()))


def data_reply(call: Call, record: WatchingRequest) -> GetDataReply:
    """Data and Stat; leaves the watch."""
    node = call.served.readable(call.connection, record.path)
    if record.watch:
        assert record.path is not None
        call.served.watch(call.served.data_watches, record.path, call.connection)
    return GetDataReply(node.data, node.stat())


def get_data(call: Call, record: WatchingRequest) -> bytes:
    """Data and Stat."""
    return encode(data_reply(call, record))


def children(call: Call, record: WatchingRequest) -> tuple[bytes, Stat]:
    """The encoded names below a node, and its Stat; leaves the watch."""
    node = call.served.readable(call.connection, record.path)
    if record.watch:
        assert record.path is not None
        call.served.watch(call.served.child_watches, record.path, call.connection)
    return call.served.names(record.path or "/", node), node.stat()


def get_children(call: Call, record: WatchingRequest) -> bytes:
    """The names."""
    return children(call, record)[0]


def get_children2(call: Call, record: WatchingRequest) -> bytes:
    """The names and the Stat."""
    names, stat = children(call, record)
    return names + encode(StatReply(stat))


def get_acl(call: Call, record: PathRequest) -> bytes:
    """The list; password hashes are shown only to clients that may change it."""
    node = call.served.readable(call.connection, record.path, READ | ADMIN)
    acl = OPEN if node.acl is None else node.acl
    try:
        check_acl(node.acl, ADMIN, call.connection.ids)
    except AccessRefused:
        acl = hide_passwords(acl)
    return encode(GetAclReply(acl, node.stat()))


def get_all_children_number(call: Call, record: PathRequest) -> bytes:
    """The number of nodes below, at any depth."""
    call.served.readable(call.connection, record.path)
    nodes = call.served.tree.nodes
    prefix = "/" if record.path == "/" else f"{record.path}/"
    count = sum(path.startswith(prefix) for path in nodes) - (prefix == "/")
    return encode(IntReply(count))


def get_ephemerals(call: Call, record: PathRequest) -> bytes:
    """The ephemeral nodes of the client's own session below a prefix."""
    prefix = (record.path or "").strip()
    owned = call.served.tree.owned_by(call.connection.session_id)
    shown = [path for path in owned if prefix in ("", "/") or path.startswith(record.path or "")]
    return encode(NamesReply(tuple(sorted(shown))))


def multi_read(call: Call, reader: JuteReader) -> Steps:
    """Several reads of the same state, each with its own result or error; they leave no watches.

    Errors: JuteError for a reply of more than MAX_MULTI_READ_BYTES.
    """
    ops: list[MultiOp] = []
    for some in multi_ops(reader, MULTI_READ_OPS):
        if ops:
            call = yield
        ops += some

    def results() -> Iterator[MultiOp]:
        for opcode, asked in ops:
            record = WatchingRequest(asked.path, False)
            try:
                if opcode == OpCode.GET_DATA:
                    yield MultiOp(opcode, data_reply(call, record))
                else:
                    yield MultiOp(opcode, children(call, record)[0])
            except StoreError as error:
                yield MultiOp(OpCode.ERROR, IntReply(code_of(error)))

    return encode_multi(results(), MAX_MULTI_READ_BYTES)


def sync(call: Call, record: PathRequest) -> bytes:
    """Do nothing, since there is no leader to catch up with."""
    return encode(PathReply(record.path))


def ping(call: Call, _: object) -> bytes:
    """Do nothing, since the session was already kept alive."""
    return b""


def who_am_i(call: Call, _: object) -> bytes:
    """The ids of the connection, without passwords."""
    ids = [AclId(id_.scheme, user_name(id_)) for id_ in call.connection.ids]
    return encode(WhoAmIReply(tuple(ids)))


# Watches


def set_watches(call: Call, reader: JuteReader) -> Steps:
    """Leave watches after a reconnect; changes in the meantime are reported immediately.

    A watch is left in one step with the comparison of its node, so that it misses no change between the steps.
    Errors: AccessRefused (THROTTLED_OP) if there is no room for all of them; none is left then.
    """
    since = INT64.read(reader)
    kinds = (SET_DATA, SET_EXIST, SET_CHILD, WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE)
    wanted: list[tuple[Any, str]] = []
    room = 0
    for number, kind in enumerate(kinds if call.opcode == OpCode.SET_WATCHES2 else kinds[:3]):
        paths = read_watched(reader, served_tree.CONNECTION_WATCH_BYTES // WATCH_BYTES)
        wanted += [(kind, path) for path in paths]
        room += sum(map(cost_of, paths)) * (1 if number < 3 else 2)
        if len(paths) > WATCHES_IN_STEP:
            call = yield
    call.served.expect_room(call.connection, room)
    for first in range(0, len(wanted), WATCHES_IN_STEP):
        if first:
            call = yield
        missed: list[bytes] = []
        for kind, path in wanted[first : first + WATCHES_IN_STEP]:
            event = set_watch(call, kind, path, since)
            if event is not None:
                missed.append(encode_notification(event, path))
        if missed:
            call.effects.send_frames(call.connection, b"".join(missed), len(missed))
    return b""


def read_watched(reader: JuteReader, most: int) -> tuple[str, ...]:
    """A vector of paths. Errors: AccessRefused (THROTTLED_OP) for more paths than may be watched; JuteError."""
    start = reader.position
    if INT32.read(reader) > most:
        raise AccessRefused(Code.THROTTLED_OP)
    reader.position = start
    paths: tuple[str, ...] | None = STRINGS.read(reader)
    if paths is None or None in paths:
        raise JuteError("a null vector or path")
    return paths


def set_watch(call: Call, kind: Any, path: str, since: int) -> EventType | None:
    """Leave a watch again, or return the event that it has missed."""
    served = call.served
    if isinstance(kind, WatchMode):
        for table in (served.data_watches, served.child_watches):
            table.add(path, call.connection, kind)
        return None
    node = served.tree.nodes.get(path)
    if kind is SET_EXIST:
        if node is not None:
            return EventType.CREATED
    elif node is None:
        return EventType.DELETED
    elif kind is SET_DATA and node.mzxid > since:
        return EventType.DATA_CHANGED
    elif kind is SET_CHILD and node.pzxid > since:
        return EventType.CHILDREN_CHANGED
    table = served.child_watches if kind is SET_CHILD else served.data_watches
    table.add(path, call.connection)
    return None


def add_watch(call: Call, record: WatchTypeRequest) -> bytes:
    """Leave a persistent watch."""
    modes = (WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE)
    if record.path is None or not 0 <= record.type < len(modes):
        raise JuteError(f"no mode {record.type}")
    call.served.watch_for_good(record.path, call.connection, modes[record.type])
    return encode(IntReply(0))


def watch_tables(call: Call, record: WatchTypeRequest) -> list[Any]:
    """The tables that a WatcherType names. Errors: JuteError."""
    if record.path is None or record.type not in (CHILDREN, DATA, ANY):
        raise JuteError(f"no type of watch {record.type}")
    tables = []
    if record.type in (CHILDREN, ANY):
        tables.append(call.served.child_watches)
    if record.type in (DATA, ANY):
        tables.append(call.served.data_watches)
    return tables


def check_watches(call: Call, record: WatchTypeRequest) -> bytes:
    """Check that such a watch exists. Errors: AccessRefused (NO_WATCHER)."""
    if not any(table.has(record.path, call.connection) for table in watch_tables(call, record)):
        raise AccessRefused(Code.NO_WATCHER)
    return b""


def remove_watches(call: Call, record: WatchTypeRequest) -> bytes:
    """Remove watches. Errors: AccessRefused (NO_WATCHER)."""
    removed = [table.remove(record.path, call.connection) for table in watch_tables(call, record)]
    if not any(removed):
        raise AccessRefused(Code.NO_WATCHER)
    return b""


Handler = Callable[[Call, Any], "bytes | Steps"]
#: Requests that use up a transaction number, successful or not.
WRITES = MULTI_OPS | {OpCode.SET_ACL, OpCode.MULTI, OpCode.RECONFIG}
#: Requests whose clients do not expect them to fail.
SETTING_WATCHES = frozenset({OpCode.SET_WATCHES, OpCode.SET_WATCHES2})
HANDLERS: dict[int, Handler] = {
    OpCode.CREATE: do_write,
    OpCode.CREATE2: do_write,
    OpCode.CREATE_CONTAINER: do_write,
    OpCode.CREATE_TTL: do_write,
    OpCode.DELETE: do_write,
    OpCode.SET_DATA: do_write,
    OpCode.SET_ACL: do_write,
    OpCode.MULTI: multi,
    OpCode.CHECK: check,
    OpCode.RECONFIG: reconfig,
    OpCode.EXISTS: exists,
    OpCode.GET_DATA: get_data,
    OpCode.GET_CHILDREN: get_children,
    OpCode.GET_CHILDREN2: get_children2,
    OpCode.GET_ACL: get_acl,
    OpCode.GET_ALL_CHILDREN_NUMBER: get_all_children_number,
    OpCode.GET_EPHEMERALS: get_ephemerals,
    OpCode.MULTI_READ: multi_read,
    OpCode.SYNC: sync,
    OpCode.PING: ping,
    OpCode.WHO_AM_I: who_am_i,
    OpCode.SET_WATCHES: set_watches,
    OpCode.SET_WATCHES2: set_watches,
    OpCode.ADD_WATCH: add_watch,
    OpCode.CHECK_WATCHES: check_watches,
    OpCode.REMOVE_WATCHES: remove_watches,
}
