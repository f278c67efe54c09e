"""The effect of each request on the tree; pure.

A handler takes the call and the request's record (for a multi, the reader positioned after the header) and returns the
body of the reply. Errors: StoreError, which becomes the `err` of the reply (`code_of`); JuteError for an unreadable
record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..acl import ADMIN, ANYONE, CREATE, OPEN, READ, AclEntry, AclId
from ..store import (
    BadVersion,
    Check,
    Delete,
    NoChildrenForEphemerals,
    NodeExists,
    NoNode,
    NotEmpty,
    SetData,
    Stat,
    StoreError,
)
from ..tree import CONTAINER, Applied, CreateNode, Node, SetAcl, TreeOp
from .access import (
    SPECIAL_PATHS,
    Refused,
    check_acl,
    expand_acl,
    hide_passwords,
    user_name,
    validate_path,
)
from .jute import JuteError, Reader
from .records import (
    MULTI_OPS,
    MULTI_READ_OPS,
    Code,
    Create2Reply,
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
    SetWatches2Request,
    SetWatchesRequest,
    StatReply,
    VersionRequest,
    WatchingRequest,
    WatchTypeRequest,
    WhoAmIReply,
    decode_multi,
    encode,
    encode_multi,
    encode_notification,
)
from .watches import WatchMode, cost_of

if TYPE_CHECKING:
    from .connection import Connection, Effects, Now
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
#: WatcherType of RemoveWatches.
CHILDREN, DATA, ANY = 1, 2, 3


class Call(NamedTuple):
    """A request being handled, with everything that a handler may use and change."""

    served: ServedTree
    connection: Connection
    opcode: int
    now: Now
    effects: Effects


def code_of(error: StoreError) -> Code:
    """The error code for a client."""
    return error.code if isinstance(error, Refused) else ERROR_CODES[type(error)]


def own_node(path: str) -> Node:
    """One of ZooKeeper's own nodes."""
    node = Node(b"", 0, 0)
    if path == "/zookeeper/config":
        node.acl = (AclEntry(READ, ANYONE),)
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
    """The tree's form of an op. Errors: Refused, if the request is invalid regardless of the tree."""
    if isinstance(record, (CreateRequest, CreateTtlRequest)):
        return create_op(call, opcode, record)
    if opcode == OpCode.DELETE:
        if not record.path or "/" not in record.path or "\0" in record.path:
            raise Refused(Code.BAD_ARGUMENTS)
        if record.path in SPECIAL_PATHS:
            raise Refused(Code.BAD_ARGUMENTS)
        return Delete(record.path, record.version)
    path = validate_path(record.path)
    if isinstance(record, SetDataRequest):
        return SetData(path, record.data, record.version)
    if isinstance(record, SetAclRequest):
        acl = expand_acl(record.acl, call.connection.ids)
        return SetAcl(path, acl, record.version)
    return Check(path, record.version)


def create_op(call: Call, opcode: int, record: CreateRequest | CreateTtlRequest) -> TreeOp:
    """The tree's form of a create. Errors: Refused."""
    if isinstance(record, CreateTtlRequest) or record.flags in CREATE_WITH_TTL:
        raise Refused(Code.UNIMPLEMENTED)
    if record.flags not in CREATE_MODES:
        raise Refused(Code.BAD_ARGUMENTS)
    ephemeral, sequential = CREATE_MODES[record.flags]
    path = record.path
    if path is None or "/" not in path or "\0" in path:
        raise Refused(Code.BAD_ARGUMENTS)
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
    reply = result_record(call.opcode, applied, 0)
    return encode(reply) if reply is not None else b""


def result_record(opcode: int, applied: Applied, index: int) -> Any:
    """The record that reports the result of one op; None if there is none."""
    result, stat = applied.results[index], applied.stats[index]
    if opcode == OpCode.CREATE:
        assert isinstance(result, str)
        return PathReply(result)
    if opcode in (OpCode.CREATE2, OpCode.CREATE_CONTAINER):
        assert isinstance(result, str) and stat is not None
        return Create2Reply(result, stat)
    return None if stat is None else StatReply(stat)


def multi(call: Call, reader: Reader) -> bytes:
    """Apply all ops, or none. In that case each result is an error, and the first failed op has its own."""
    ops = decode_multi(reader, MULTI_OPS)
    begun = 0

    def tree_ops() -> Iterator[TreeOp]:
        nonlocal begun
        for begun, (opcode, record) in enumerate(ops):  # noqa: B007 - says which op failed
            yield tree_op(call, opcode, record)

    try:
        applied = write(call, tree_ops())
    except StoreError as error:
        codes = [Code.OK] * begun + [code_of(error)]
        codes += [Code.RUNTIME_INCONSISTENCY] * (len(ops) - len(codes))
        return encode_multi([MultiOp(OpCode.ERROR, IntReply(code)) for code in codes])
    results = []
    for index, (opcode, _) in enumerate(ops):
        shown = OpCode.CREATE2 if opcode == OpCode.CREATE_CONTAINER else opcode
        results.append(MultiOp(shown, result_record(opcode, applied, index)))
    return encode_multi(results)


def check(call: Call, record: VersionRequest) -> bytes:
    """A check outside of a multi, which no client library sends; uses up a number like a write."""
    do_write(call, record)
    return b""


def reconfig(call: Call, _: object) -> bytes:
    """Refuse, since there is nothing to reconfigure."""
    call.served.tree.zxid += 1
    raise Refused(Code.RECONFIG_DISABLED)


# Reads


def exists(call: Call, record: WatchingRequest) -> bytes:
    """The Stat; the watch is left even without a node."""
    if record.path is None:
        raise JuteError("a null path")
    if "\0" in record.path:
        raise Refused(Code.BAD_ARGUMENTS)
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
    except Refused:
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


def multi_read(call: Call, reader: Reader) -> bytes:
    """Several reads, each with its own result or error; they leave no watches.

    Errors: JuteError for a reply of more than MAX_MULTI_READ_BYTES.
    """

    def results() -> Iterator[MultiOp]:
        for opcode, asked in decode_multi(reader, MULTI_READ_OPS):
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


def set_watches(call: Call, record: SetWatchesRequest | SetWatches2Request) -> bytes:
    """Leave watches after a reconnect; changes in the meantime are reported immediately.

    Errors: Refused (THROTTLED_OP) if there is no room for all of them; none is left then.
    """
    served, connection = call.served, call.connection
    nodes, since = served.tree.nodes, record.relative_zxid

    def tell(type_: EventType, path: str) -> None:
        call.effects.send(connection, encode_notification(type_, path))

    vectors = record[1:]
    if any(paths is None or None in paths for paths in vectors):  # type: ignore[redundant-expr]
        raise JuteError("a null vector or path")
    once = sum(cost_of(path) for paths in vectors[:3] for path in paths)
    for_good = sum(cost_of(path) for paths in vectors[3:] for path in paths)
    served.expect_room(connection, once + 2 * for_good)
    for path in record.data:
        node = nodes.get(path)
        if node is None:
            tell(EventType.DELETED, path)
        elif node.mzxid > since:
            tell(EventType.DATA_CHANGED, path)
        else:
            served.data_watches.add(path, connection)
    for path in record.exist:
        if path in nodes:
            tell(EventType.CREATED, path)
        else:
            served.data_watches.add(path, connection)
    for path in record.child:
        node = nodes.get(path)
        if node is None:
            tell(EventType.DELETED, path)
        elif node.pzxid > since:
            tell(EventType.CHILDREN_CHANGED, path)
        else:
            served.child_watches.add(path, connection)
    if isinstance(record, SetWatches2Request):
        for paths, mode in (
            (record.persistent, WatchMode.PERSISTENT),
            (record.persistent_recursive, WatchMode.PERSISTENT_RECURSIVE),
        ):
            for path in paths:
                served.watch_for_good(path, connection, mode)
    return b""


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
    """Check that such a watch exists. Errors: Refused (NO_WATCHER)."""
    if not any(table.has(record.path, call.connection) for table in watch_tables(call, record)):
        raise Refused(Code.NO_WATCHER)
    return b""


def remove_watches(call: Call, record: WatchTypeRequest) -> bytes:
    """Remove watches. Errors: Refused (NO_WATCHER)."""
    removed = [table.remove(record.path, call.connection) for table in watch_tables(call, record)]
    if not any(removed):
        raise Refused(Code.NO_WATCHER)
    return b""


Handler = Callable[[Call, Any], bytes]
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
