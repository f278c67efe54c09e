"""The store in a ZooKeeper ensemble, through kazoo.

kazoo runs three threads of its own. Requests enter only by its `*_async` calls, which never block; results, watches and
session changes leave by `loop.call_soon_threadsafe`. This module prepends the chroot to each path, so that it can
create the chroot with the same connection.

After an expiry, kazoo opens a new session by itself. `_fence` makes the check "is this still the adopted session" and
the queueing of the write one step with respect to kazoo's thread, so no write of the old session can enter the new one.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..arguments import fault_of_host
from . import store
from .store import (
    ANY_VERSION,
    Check,
    Create,
    EventKind,
    Op,
    OpResult,
    SessionExpired,
    SessionState,
    SetData,
    Stat,
    StoreClosed,
    StoreError,
    Watch,
    WatchEvent,
    check_path,
)
from .znode_acls import Access, access_of

if TYPE_CHECKING:
    import ssl

    from kazoo.client import KazooClient, TransactionRequest
    from kazoo.protocol.states import ZnodeStat
    from kazoo.security import ACL

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The maximum number of requests in flight from one `get_many`: kazoo wakes its thread with one byte per request
#: through a socket pair, and a full one would block the loop.
PIPELINE = 512
#: The longest pause between attempts to reach a server; Apache Kafka's pause is one second.
RECONNECT_MAX_SECONDS = 1.0
STOP_SECONDS = 1.0


def split_chroot(connect: str) -> tuple[str, str]:
    """Split a connect string `h1:p1,h2:p2/path` into its hosts and the chroot ("" if none).

    Errors: ValueError for a chroot that is not a path.
    """
    hosts, slash, chroot = connect.partition("/")
    path = (slash + chroot).rstrip("/")
    if path:
        check_path(path)
    if not hosts:
        raise ValueError(f"no host in the ZooKeeper connect string {connect!r}")
    return hosts, path


@dataclass(frozen=True, slots=True, repr=False)
class ZooKeeperLogin:
    """A user of ZooKeeper's DigestLoginModule."""

    user: str
    password: str

    MECHANISM: ClassVar[str] = "DIGEST-MD5"

    def sasl_options(self) -> dict[str, str]:
        """The login in kazoo's form."""
        return {"mechanism": self.MECHANISM, "username": self.user, "password": self.password}


class Bridge:
    """Carries a watch from kazoo's thread to the loop; equal watches have equal bridges."""

    __slots__ = ("path", "store", "watch")

    def __init__(self, store: ZooKeeperStore, watch: Watch, path: str) -> None:
        self.store = store
        self.watch = watch
        self.path = path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bridge) and self.watch == other.watch

    def __hash__(self) -> int:
        return hash(self.watch)

    def __call__(self, event: Any) -> None:
        # The bridge uses its own path, because kazoo gives none if the session was lost.
        self.store.post(self.watch, WatchEvent(EVENT_KINDS[event.type], self.path))


class ZooKeeperStore:
    """One ZooKeeper session. Source of the contract: `store.Store`."""

    def __init__(
        self, client: KazooClient, chroot: str, timeout_ms: int, *, set_acl: bool = False
    ) -> None:
        self._client = client
        self._chroot = chroot
        self._set_acl = set_acl
        #: With a login, there is a session only once it is accepted; kazoo reports one earlier.
        self._logs_in = False
        #: The text of ZooKeeper's refusal of the login; written in kazoo's thread.
        self._refused: str | None = None
        self.refused_logins = 0
        self._timeout_ms = timeout_ms
        self._loop = asyncio.get_running_loop()
        self._fence = threading.Lock()
        self._live_session = 0  # written in kazoo's thread
        self._adopted_session = 0
        self._session_id = 0
        self._connected = False
        self._closed = False
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False
        self._waiting: list[asyncio.Future[None]] = []
        self._callbacks: list[Callable[[SessionState], None]] = []

    @classmethod
    async def connect(
        cls,
        connect: str,
        *,
        session_timeout_ms: int = 18_000,
        connection_timeout_ms: int = 18_000,
        login: ZooKeeperLogin | None = None,
        tls: ssl.SSLContext | None = None,
        set_acl: bool = False,
    ) -> ZooKeeperStore:
        """Open a session and create the chroot of the connect string if it is missing.

        Shape: with `set_acl`, created nodes belong to this client's login, or to its certificate in `tls`.
        Errors: StoreClosed if no server answers within `connection_timeout_ms`, or refuses the login; ValueError.
        """
        from kazoo.client import KazooClient
        from kazoo.hosts import collect_hosts
        from kazoo.retry import KazooRetry

        hosts, chroot = split_chroot(connect)
        for host, _ in collect_hosts(hosts)[0]:
            if refused := fault_of_host(host):  # it would end kazoo's thread
                raise ValueError(refused)
        client = KazooClient(
            hosts=hosts,
            handler=direct_handler(tls),
            sasl_options=None if login is None else login.sasl_options(),
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, max_delay=RECONNECT_MAX_SECONDS),
        )
        opened = cls(client, chroot, session_timeout_ms, set_acl=set_acl)
        if login is not None:
            opened._survive_refused_logins(login)
        client.add_listener(opened._state_changed)
        client.start_async()
        try:
            await asyncio.wait_for(opened.connected(), connection_timeout_ms / 1000)
            if chroot:
                acl = opened._acl("/")
                await opened._read(partial(client.ensure_path_async, chroot, acl), chroot)
        except TimeoutError:
            await opened.close()
            if opened._refused is not None:
                raise StoreClosed(message=opened._refused) from None
            raise StoreClosed(
                message=f"no ZooKeeper server at {hosts} answered within {connection_timeout_ms} ms"
            ) from None
        except BaseException:
            await opened.close()
            raise
        return opened

    # Session

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_ms(self) -> int:
        return self._timeout_ms

    def on_session(self, callback: Callable[[SessionState], None]) -> None:
        self._callbacks.append(callback)

    def adopt_session(self) -> None:
        with self._fence:
            self._adopted_session = self._live_session

    async def connected(self) -> None:
        while not self._connected:
            self._check_open()
            waiter = self._loop.create_future()
            self._waiting.append(waiter)
            await waiter
        self._check_open()

    def _state_changed(self, state: str) -> None:
        """Handle a change of the connection; called in kazoo's thread, before other listeners."""
        if state == "LOST":
            with self._fence:
                self._live_session += 1
            self.post(self._session_changed, SessionState.EXPIRED, 0)
        elif state == "SUSPENDED":
            self.post(self._session_changed, SessionState.SUSPENDED, 0)
        elif not self._logs_in:
            self._report_connected()

    def _report_connected(self) -> None:
        client_id = self._client.client_id
        session_id = client_id[0] if client_id else 0
        self.post(self._session_changed, SessionState.CONNECTED, session_id)

    def _session_changed(self, state: SessionState, session_id: int) -> None:
        if self._closed:
            return
        self._connected = state is SessionState.CONNECTED
        if self._connected:
            self._session_id = session_id
            waiting, self._waiting = self._waiting, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
        for callback in self._callbacks:
            callback(state)

    def _survive_refused_logins(self, login: ZooKeeperLogin) -> None:
        """Make kazoo try again after a refused login, since a stopping server ends the connection in the same way.

        kazoo would close the client permanently, and a broker would not come back when the server does.
        """
        from kazoo.exceptions import AuthFailedError, ConnectionDropped

        connection = self._client._connection
        log_in = connection._authenticate_with_sasl

        def log_in_or_drop(*arguments: Any) -> None:
            try:
                log_in(*arguments)
            except AuthFailedError:
                reason = f"ZooKeeper refused the login of {login.user} ({login.MECHANISM})"
                self.refused_logins += 1
                if self._refused is None:
                    logger.error("%s; trying again", reason)
                self._refused = reason
                raise ConnectionDropped(reason) from None
            self._refused = None
            self._report_connected()

        self._logs_in = True
        connection._authenticate_with_sasl = log_in_or_drop

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(StoreClosed(message="the session is closed"))
        self._waiting.clear()
        # stop() waits for kazoo's threads, which may be in the middle of a connection attempt. Without a session there
        # is nothing to end, and no need to wait for a server that does not respond.
        stopping = threading.Thread(target=self._stop, name="kazoo-stop", daemon=True)
        stopping.start()
        longest_s = None if self._session_id else STOP_SECONDS
        await self._loop.run_in_executor(None, stopping.join, longest_s)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    # Verbs

    async def create(
        self,
        path: str,
        data: bytes | None = None,
        *,
        ephemeral: bool = False,
        sequential: bool = False,
    ) -> str:
        check_path(path)
        made = await self._write(
            partial(
                self._client.create_async,
                self._full(path),
                data,
                acl=self._acl(path),
                ephemeral=ephemeral,
                sequence=sequential,
            ),
            path,
        )
        return self._local(str(made))

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes | None, Stat]:
        data, stat = await self._read(
            partial(self._client.get_async, self._full(path), self._bridge(watch, path)), path
        )
        return data, to_stat(stat)

    async def get_many(
        self, paths: Sequence[str], watch: Watch | None = None
    ) -> list[tuple[bytes | None, Stat] | None]:
        found: list[tuple[bytes | None, Stat] | None] = []
        for start in range(0, len(paths), PIPELINE):
            found += await self._get_pipelined(paths[start : start + PIPELINE], watch)
        return found

    async def _get_pipelined(
        self, paths: Sequence[str], watch: Watch | None
    ) -> list[tuple[bytes | None, Stat] | None]:
        """Read nodes in one batch, and wake the loop only once, to leave the processor to kazoo's thread."""
        from kazoo.exceptions import NoNodeError

        await self.connected()
        all_there: asyncio.Future[None] = self._loop.create_future()
        left = itertools.count(len(paths) - 1, -1)

        def arrived(_: Any) -> None:
            if next(left) == 0:
                self.post(set_done, all_there)

        pending = [
            self._client.get_async(self._full(path), self._bridge(watch, path)) for path in paths
        ]
        for result in pending:
            result.rawlink(arrived)
        await all_there
        found: list[tuple[bytes | None, Stat] | None] = []
        for path, result in zip(paths, pending, strict=True):
            if result.exception is None:
                found.append((result.value[0], to_stat(result.value[1])))
            elif isinstance(result.exception, NoNodeError):
                found.append(None)
            else:
                found.append(await self._get_or_none(path, watch))  # this call tries again
        return found

    async def _get_or_none(
        self, path: str, watch: Watch | None
    ) -> tuple[bytes | None, Stat] | None:
        try:
            return await self.get(path, watch)
        except store.NoNode:
            return None

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        stat = await self._read(
            partial(self._client.exists_async, self._full(path), self._bridge(watch, path)), path
        )
        return None if stat is None else to_stat(stat)

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        names: list[str] = await self._read(
            partial(self._client.get_children_async, self._full(path), self._bridge(watch, path)),
            path,
        )
        return names

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        # kazoo's set refuses null data; a transaction with one op does not.
        result = (await self.multi([SetData(path, data, version)]))[0]
        assert isinstance(result, Stat)
        return result

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._write(partial(self._client.delete_async, self._full(path), version), path)

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        if not ops:
            return []
        transaction = self._transaction(ops)
        answers = await self._write(transaction.commit_async, ops[0].path)
        raise_first(answers, ops)
        results: list[OpResult] = []
        for op, answer in zip(ops, answers, strict=True):
            if isinstance(op, Create):
                results.append(self._local(answer))
            elif isinstance(op, SetData):
                results.append(to_stat(answer))
            else:
                results.append(None)
        return results

    def _transaction(self, ops: Sequence[Op]) -> TransactionRequest:
        transaction = self._client.transaction()
        for op in ops:
            path = self._full(op.path)
            if isinstance(op, Create):
                check_path(op.path)
                transaction.create(
                    path,
                    op.data or b"",
                    acl=self._acl(op.path),
                    ephemeral=op.ephemeral,
                    sequence=op.sequential,
                )
            elif isinstance(op, SetData):
                transaction.set_data(path, op.data or b"", op.version)
            elif isinstance(op, Check):
                transaction.check(path, op.version)
            else:
                transaction.delete(path, op.version)
            if isinstance(op, Create | SetData) and op.data is None:
                # kazoo refuses null data here, although the protocol and Apache Kafka allow it.
                transaction.operations[-1] = transaction.operations[-1]._replace(data=None)
        return transaction

    # To kazoo and back

    async def _read(self, start: Callable[[], Any], path: str) -> Any:
        """Run a read, and repeat it after each lost connection, since it changes nothing."""
        while True:
            await self.connected()
            try:
                return await self._result(start(), path)
            except (store.ConnectionLost, SessionExpired):
                # Let the loop process the lost connection before the check for a connection.
                await asyncio.sleep(0)

    async def _write(self, start: Callable[[], Any], path: str) -> Any:
        self._check_open()
        with self._fence:
            if self._live_session != self._adopted_session:
                raise SessionExpired(path, "the session expired")
            pending = start()
        return await self._result(pending, path)

    async def _result(self, pending: Any, path: str) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        pending.rawlink(lambda result: self.post(self._resolve, future, result, path))
        return await future

    def _resolve(self, future: asyncio.Future[Any], result: Any, path: str) -> None:
        if future.done():
            return
        error = result.exception
        if error is None:
            future.set_result(result.value)
        else:
            future.set_exception(translate(error, path))

    def post(self, call: Callable[..., None], *arguments: Any) -> None:
        """Make a call on the loop, from any thread, in order, unless the loop is closed."""
        self._inbox.append((call, arguments))
        if self._woken:  # the loop has yet to process the queue and will find this call
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._drain)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def _drain(self) -> None:
        self._woken = False
        while self._inbox:
            call, arguments = self._inbox.popleft()
            call(*arguments)

    def _bridge(self, watch: Watch | None, path: str) -> Bridge | None:
        return None if watch is None else Bridge(self, watch, path)

    def _acl(self, path: str) -> list[ACL] | None:
        """The ACL of a new node; None for kazoo's default, which is open to everyone."""
        if not self._set_acl:
            return None
        from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

        access = access_of(path)
        if access is Access.OPEN:
            return [*OPEN_ACL_UNSAFE]
        return [*CREATOR_ALL_ACL, *(READ_ACL_UNSAFE if access is Access.READ else ())]

    def _full(self, path: str) -> str:
        return (self._chroot + path if path != "/" else self._chroot) or "/"

    def _local(self, path: str) -> str:
        return path[len(self._chroot) :] or "/"

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed(message="the session is closed")


def direct_handler(tls: ssl.SSLContext | None = None) -> Any:
    """A kazoo handler that delivers results directly, without another thread in between.

    Shape: with `tls`, connections are encrypted.
    """
    from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

    class DirectResult(AsyncResult):  # type: ignore[misc] # kazoo has no types
        def _do_callbacks(self) -> None:
            for callback in self._callbacks:
                callback(self)

    class DirectHandler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
        def async_result(self) -> DirectResult:
            return DirectResult(self)

        def select(self, readers: Any, writers: Any, errors: Any, timeout: Any = None) -> Any:
            # Bytes that TLS has already decrypted do not make a socket readable.
            ready = [each for each in readers if tls is not None and _has_pending(each)]
            if not ready:
                return super().select(readers, writers, errors, timeout)
            found, *others = super().select(readers, writers, errors, 0)
            return [*found, *(each for each in ready if each not in found)], *others

        def create_connection(self, *arguments: Any, **options: Any) -> Any:
            # kazoo would read certificates from PEM files for each connection.
            sock = super().create_connection(*arguments, **options)
            if tls is None:
                return sock
            try:
                return tls.wrap_socket(sock, server_hostname=options["hostname"])
            except BaseException:
                sock.close()
                raise

    return DirectHandler()


def _has_pending(sock: Any) -> bool:
    pending = getattr(sock, "pending", None)
    return pending is not None and pending() > 0


EVENT_KINDS = {
    "CREATED": EventKind.CREATED,
    "DELETED": EventKind.DELETED,
    "CHANGED": EventKind.CHANGED,
    "CHILD": EventKind.CHILDREN,
    "NONE": EventKind.SESSION,
}


def set_done(future: asyncio.Future[None]) -> None:
    """Resolve a future that may have been cancelled in the meantime."""
    if not future.done():
        future.set_result(None)


def to_stat(stat: ZnodeStat) -> Stat:
    """Convert kazoo's Stat into the store's."""
    return Stat(
        stat.czxid,
        stat.mzxid,
        stat.ctime,
        stat.mtime,
        stat.version,
        stat.cversion,
        stat.ephemeralOwner,
        stat.numChildren,
        stat.pzxid,
        stat.aversion,
        stat.dataLength,
    )


def raise_first(answers: Sequence[Any], ops: Sequence[Op]) -> None:
    """Raise for the op that failed a transaction; the errors of the others are only consequences."""
    from kazoo.exceptions import RolledBackError, RuntimeInconsistency

    for index, (op, answer) in enumerate(zip(ops, answers, strict=True)):
        if isinstance(answer, Exception) and not isinstance(
            answer, RolledBackError | RuntimeInconsistency
        ):
            error = translate(answer, op.path)
            error.index = index
            raise error


def translate(error: BaseException, path: str) -> StoreError:
    """The store's error for one of kazoo's; kazoo's exceptions do not leave this module."""
    from kazoo import exceptions as kazoo

    table: list[tuple[type[BaseException], type[StoreError]]] = [
        (kazoo.NoNodeError, store.NoNode),
        (kazoo.NodeExistsError, store.NodeExists),
        (kazoo.BadVersionError, store.BadVersion),
        (kazoo.NotEmptyError, store.NotEmpty),
        (kazoo.NoChildrenForEphemeralsError, store.NoChildrenForEphemerals),
        (kazoo.ConnectionClosedError, store.StoreClosed),  # kazoo's is also a SessionExpiredError
        (kazoo.SessionExpiredError, store.SessionExpired),
        (kazoo.ConnectionLoss, store.ConnectionLost),
        (kazoo.OperationTimeoutError, store.ConnectionLost),
        (kazoo.AuthFailedError, store.StoreClosed),
        (kazoo.NoAuthError, store.NotAllowed),
        (kazoo.InvalidACLError, store.NotAllowed),
    ]
    for theirs, ours in table:
        if isinstance(error, theirs):
            return ours(path, f"ZooKeeper: {type(error).__name__}")
    return StoreError(path, f"ZooKeeper: {type(error).__name__} {error}".rstrip())
