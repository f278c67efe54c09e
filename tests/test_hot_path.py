"""The cost of one produce and one fetch in system calls, Python calls and copies, asserted.

The figures are limits with a little room, not targets. A change that exceeds one adds work to the
path of every batch, and its author should know that.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import select
import socket
import sys
import termios
import time
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.codec import decode, encode
from kwire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kwire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kwire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kwire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kwire.messages.produce import (
    ProduceResponse,
)
from kwire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kwire.records.builder import BatchBuilder
from kwire.schema import schema_of
from server import native
from server.broker import Broker
from server.config import BrokerConfig
from server.coordinator.group.coordinator import WaitingJoin
from server.coordinator.group.state import Group
from server.log.file_layer import FileLayer
from server.metadata.internal_topics import GROUP_METADATA_TOPIC
from server.net import platform
from server.quotas.entities import CLIENT_QUOTAS, Entity
from tests.support.requests import produce_request

PARTITIONS = 6
#: For groups of one broker.
GROUPS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.initial.rebalance.delay.ms": "0",
}
#: Bytes of a frame that the kernel takes before any are read.
SMALL = 32_768
PRODUCE_VERSION = 11
FETCH_VERSION = 12

pytestmark = pytest.mark.usefixtures("both_forms")


class CountingSocket:
    """A socket that counts the calls which enter the kernel."""

    def __init__(self, sock: socket.socket, counts: Counter[str]) -> None:
        self._sock = sock
        self._counts = counts

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._sock, name)
        if name not in ("recv_into", "recv", "send", "sendmsg"):
            return found

        def counted(*args: Any) -> Any:
            self._counts[name] += 1
            return found(*args)

        return counted


class Wire:
    """A broker, and a client whose requests are handled at the test's request."""

    def __init__(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.counts: Counter[str] = Counter()
        self.written: list[Any] = []
        self._monkeypatch = monkeypatch
        pwrite = FileLayer.pwrite

        def counted_pwrite(fd: int, data: Any, position: int) -> int:
            self.counts["pwrite"] += 1
            self.written.append(data)
            return pwrite(fd, data, position)

        monkeypatch.setattr(FileLayer, "pwrite", staticmethod(counted_pwrite))
        for name in ("send_file", "is_cached", "read_cached"):
            monkeypatch.setattr(platform, name, self._counted(name, getattr(platform, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            self.counts[name] += 1
            return function(*args)

        return counted

    async def connect(self) -> None:
        self.client = socket.create_connection(("127.0.0.1", self.broker.serving.listeners[0].port))
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        while not self.broker.serving.listeners[0].sessions:
            await asyncio.sleep(0)
        self.session = next(iter(self.broker.serving.listeners[0].sessions))
        self.transport: Any = self.session.transport
        self.fd = self.transport._sock.fileno()
        self.transport._sock = CountingSocket(self.transport._sock, self.counts)
        self.transport.pause_reading()  # the test acts as the loop

    def deliver(self, frame: bytes) -> None:
        """Send a request frame and have the broker handle it, within this call."""
        self.client.setblocking(False)
        sent = 0
        while sent < len(frame):
            try:
                sent += self.client.send(memoryview(frame)[sent:])
            except BlockingIOError:
                self.read_once()
        # A busy kernel delivers data late, and in parts, and unsuccessful reads would also count. (This is not a
        # separate function, since its calls would count.) It may accept the rest of a large frame only after the first
        # part was read.
        deadline = time.monotonic() + 60
        size = bytearray(4)
        while len(frame) <= SMALL and int.from_bytes(size, sys.byteorder) < len(frame):
            assert time.monotonic() < deadline
            select.select([self.fd], [], [], 0.001)
            fcntl.ioctl(self.fd, termios.FIONREAD, size)
        while self.session.requests == self.handled:
            assert time.monotonic() < deadline
            if select.select([self.fd], [], [], 1)[0]:
                self.read_once()
        assert self.session.requests == self.handled + 1

    def read_once(self) -> None:
        self.transport._reading = True
        self.transport._readable()
        self.transport._reading = False

    def request(self, frame: bytes) -> None:
        self.handled = self.session.requests
        self.counts.clear()
        self.written.clear()
        self.deliver(frame)

    def response(self) -> bytes:
        self.client.setblocking(True)
        self.client.settimeout(5)
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            got = self.client.recv(size - len(data))
            assert got
            data += got
        return data


def batch_of(size: int) -> bytes:
    builder = BatchBuilder()
    now_ms = int(time.time() * 1000)
    for _ in range(max(1, size // 1000)):
        builder.append(now_ms, None, b"v" * 980)
    return builder.build()


def frame(api_key: int, version: int, body: bytes) -> bytes:
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\1c"
    if version >= (9 if api_key == 0 else 12):
        header += b"\0"  # no tagged fields
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def produce_frame(batch: bytes, partitions: int = PARTITIONS) -> bytes:
    request = produce_request(*(("hot", i, batch) for i in range(partitions)))
    return frame(0, PRODUCE_VERSION, encode(request, PRODUCE_VERSION))


def fetch_frame(max_bytes: int, partitions: int = 1, all_bytes: int = 0, offset: int = 0) -> bytes:
    rows = [
        FetchPartition(partition=i, fetch_offset=offset, partition_max_bytes=max_bytes)
        for i in range(partitions)
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=all_bytes or max_bytes * partitions,
        topics=[FetchTopic(topic="hot", partitions=rows)],
    )
    return frame(1, FETCH_VERSION, encode(request, FETCH_VERSION))


def python_calls(function: Callable[[], None]) -> int:
    """The number of Python functions called inside (calls of C functions are not counted)."""
    calls = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # it calls functions: Hypothesis' own, and those of objects that earlier tests left
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return calls


#: The files between the connection and a handler, in server/handlers.
GATE = ("dispatch.py", "context.py", "registry.py", "authorization.py", "gate.py", "refusals.py")


def gate_calls(function: Callable[[], None]) -> list[str]:
    """The Python functions of the gate that were called inside, in order."""
    calls = []

    def note(frame: Any, event: str, __: Any) -> None:
        path = Path(frame.f_code.co_filename)
        is_gate = path.parent.name == "handlers" and path.name in GATE
        if event == "call" and is_gate:
            calls.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def kernel_calls(wire: Wire, frame: bytes) -> Counter[str]:
    """The names of the kernel calls that one request made: all of `os`, sockets and epoll."""
    calls: Counter[str] = Counter()

    def count(_: Any, event: str, function: Any) -> None:
        if event != "c_call":
            return
        owner = getattr(function, "__self__", None)
        if owner is not wire.client and (
            getattr(function, "__module__", None) == "posix"
            or isinstance(owner, socket.socket | select.epoll)
        ):
            calls[function.__name__] += 1

    sys.setprofile(count)
    try:
        wire.request(frame)
    finally:
        sys.setprofile(None)
    return calls


def run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: Callable[[Wire], None],
    prepare: Callable[[Broker], Awaitable[None]] | None = None,
    **settings: str,
) -> None:
    async def main() -> None:
        config = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path),
            "num.partitions": str(PARTITIONS),
            "broker.id": "1",
            "socket.receive.buffer.bytes": str(4 << 20),
            "socket.send.buffer.bytes": str(4 << 20),
            **settings,
        }
        broker = Broker(BrokerConfig(config))
        await broker.start()
        try:
            assert await broker.rooms.services.topics.auto_create(["hot"]) == {}
            if prepare is not None:
                await prepare(broker)
            wire = Wire(broker, monkeypatch)
            await wire.connect()
            body(wire)
            wire.client.close()
        finally:
            await broker.stop()

    asyncio.run(main())


def test_produce_costs_one_write_a_batch_one_send_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        request = produce_frame(batch_of(16_000))
        for _ in range(3):
            wire.request(request)
            answer = decode(ProduceResponse, wire.response()[5:], PRODUCE_VERSION)
            codes = [row.error_code for row in answer.responses[0].partition_responses]
            assert codes == [0] * PARTITIONS
        assert wire.counts["pwrite"] == PARTITIONS
        assert wire.counts["send"] + wire.counts["sendmsg"] == 1
        # The frame is larger than the connection's buffer: some reads, none of them tiny.
        assert wire.counts["recv_into"] <= 4

    run(tmp_path, monkeypatch, body)


def test_produce_writes_the_batch_from_where_it_was_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        batch = batch_of(900_000)
        request = produce_frame(batch, partitions=1)
        wire.request(request)  # the first one may allocate the frame's buffer
        wire.response()
        wire.written.clear()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            wire.request(request)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        wire.response()
        written = [data for data in wire.written if len(data) == len(batch)]
        assert len(written) == 1
        assert isinstance(written[0], memoryview)
        assert peak < len(batch) // 10, f"{peak} bytes were allocated for a batch of {len(batch)}"

    run(tmp_path, monkeypatch, body)


def test_produce_runs_a_bounded_number_of_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        one, six = produce_frame(batch_of(4_000), 1), produce_frame(batch_of(4_000), 6)
        counts = []
        for request in (one, six):
            for _ in range(3):
                wire.request(request)
                wire.response()
            counts.append(python_calls(lambda request=request: wire.request(request)))
            wire.response()
        per_batch = (counts[1] - counts[0]) / 5
        assert per_batch <= 14, f"{per_batch} Python calls for each further batch"
        assert counts[0] <= 64, f"{counts[0]} Python calls for a request of one batch"

    run(tmp_path, monkeypatch, body)


def test_gate_costs_a_request_four_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regardless of checks, observation and throttling, a request costs only the enabled features; the native form
    makes one more check.
    """
    at_once = ["RequestDispatcher.at_once"] if native.form() == "native" else []
    calls = [
        "RequestDispatcher.dispatch",
        "HandlerTable.find",
        "RequestContext.__init__",
        "RequestDispatcher._reply",
    ]

    def body(wire: Wire) -> None:
        for request in (produce_frame(batch_of(4_000)), fetch_frame(8_000, PARTITIONS)):
            for _ in range(3):
                wire.request(request)
                wire.response()
            found = gate_calls(lambda request=request: wire.request(request))
            assert found in ([*at_once, *calls], at_once or calls)
            wire.response()

    run(tmp_path, monkeypatch, body)


def test_quotas_cost_a_request_some_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All three quotas that count for it, set for the client by its id; nothing is throttled."""

    def body(wire: Wire) -> None:
        counts = []
        for limits in ({}, dict.fromkeys(CLIENT_QUOTAS, 1e12)):
            wire.broker.rooms.services.quotas.set(Entity(None, "c"), limits)
            for request in (produce_frame(batch_of(4_000), 1), fetch_frame(8_000, PARTITIONS)):
                for _ in range(3):
                    wire.request(request)
                    wire.response()
                counts.append(python_calls(lambda request=request: wire.request(request)))
                wire.response()
        # A client with quotas is not answered directly by the native module.
        most = 22 if native.form() == "pure" else 32
        assert counts[2] - counts[0] <= most, f"{counts} for Produce, Fetch, and both with quotas"
        assert counts[3] - counts[1] <= 32, f"{counts} for Produce, Fetch, and both with quotas"

    run(tmp_path, monkeypatch, body)


def test_metrics_cost_a_request_one_python_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that is counted and not timed; at a high rate, only few are timed."""
    counts: dict[str, list[int]] = {"Produce": [], "Fetch": []}

    def body(wire: Wire) -> None:
        observer: Any = wire.broker.rooms.dispatcher._observer  # type: ignore[union-attr]
        requests = {
            "Produce": produce_frame(batch_of(4_000), 1),
            "Fetch": fetch_frame(8_000, PARTITIONS),
        }
        for name, request in requests.items():
            for _ in range(3):
                wire.request(request)
                wire.response()
            if observer is not None:
                observer.adapt(0 if name == "Produce" else 1, 1_000)
                timed = observer.apis[0 if name == "Produce" else 1].mask
                assert timed == 127
            counts[name].append(python_calls(lambda request=request: wire.request(request)))
            wire.response()

    (tmp_path / "without").mkdir()
    (tmp_path / "with").mkdir()
    run(tmp_path / "without", monkeypatch, body)
    run(tmp_path / "with", monkeypatch, body, **{"kwire.http.listener": "127.0.0.1:0"})
    assert counts["Produce"][1] - counts["Produce"][0] <= 1, counts
    assert counts["Fetch"][1] - counts["Fetch"][0] <= 1, counts


def test_records_in_a_batch_cost_no_python_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        counts = []
        for size in (2_000, 60_000):
            request = produce_frame(batch_of(size), 1)
            for _ in range(3):
                wire.request(request)
                wire.response()
            counts.append(python_calls(lambda request=request: wire.request(request)))
            wire.response()
        # Only the reads of the larger frame may add calls.
        assert counts[1] - counts[0] <= 20, counts

    run(tmp_path, monkeypatch, body)


def test_fetch_sends_stored_bytes_from_the_page_cache_without_reading_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        batch = batch_of(900_000)
        wire.request(produce_frame(batch, partitions=1))
        wire.response()
        request = fetch_frame(1 << 20)
        wire.request(request)
        answer = decode(FetchResponse, wire.response()[5:], FETCH_VERSION)
        assert len(answer.responses[0].partitions[0].records) == len(batch)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            wire.request(request)
            peak = tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        counts = wire.counts
        assert counts["send_file"] >= 1
        assert counts["sendmsg"] + counts["send"] <= 2
        assert counts["read_cached"] <= 2  # the slice is too large to be copied
        assert peak < len(batch) // 10, f"{peak} bytes were allocated for {len(batch)} sent"

    run(tmp_path, monkeypatch, body)


def test_produce_enters_the_kernel_to_receive_to_write_and_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        wire.request(produce_frame(batch_of(900_000), 1))  # the buffer grows to the needed size
        wire.response()
        for partitions in (1, PARTITIONS):
            request = produce_frame(batch_of(16_000), partitions)
            for _ in range(3):
                wire.request(request)
                wire.response()
            calls = kernel_calls(wire, request)
            wire.response()
            assert calls.pop("recv_into") <= 4
            assert calls.pop("send", 0) + calls.pop("sendmsg", 0) == 1
            assert calls == {"pwrite": partitions}

    run(tmp_path, monkeypatch, body)


def test_fetch_enters_the_kernel_to_look_at_the_cache_and_to_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        batch = batch_of(900_000)
        wire.request(produce_frame(batch, 1))
        wire.response()
        request = fetch_frame(1 << 20)
        for _ in range(3):
            wire.request(request)
            wire.response()
        calls = kernel_calls(wire, request)
        assert len(wire.response()) > len(batch)
        assert calls.pop("recv_into") == 1
        # The data before the records, after them, and the records themselves.
        assert calls.pop("sendmsg", 0) + calls.pop("send", 0) <= 2
        assert calls.pop("sendfile") <= 2
        assert calls.pop("preadv") <= 2 + len(batch) // platform.PROBE_STRIDE_BYTES + 1
        assert calls == {}

    run(tmp_path, monkeypatch, body)


def test_fetch_of_small_batches_reads_each_once_and_sends_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        batch = batch_of(4_000)
        wire.request(produce_frame(batch))
        wire.response()
        request = fetch_frame(8_000, PARTITIONS)
        for _ in range(3):
            wire.request(request)
            wire.response()
        calls = kernel_calls(wire, request)
        answer = decode(FetchResponse, wire.response()[5:], FETCH_VERSION)
        assert [len(row.records) for row in answer.responses[0].partitions] == [
            len(batch)
        ] * PARTITIONS
        assert calls.pop("recv_into") == 1
        assert calls.pop("sendmsg", 0) + calls.pop("send", 0) == 1
        assert calls.pop("preadv", 0) + calls.pop("pread", 0) <= PARTITIONS
        assert calls == {}

    run(tmp_path, monkeypatch, body)


@pytest.mark.parametrize("rest", [0, 1000])
def test_partitions_for_which_no_bytes_are_left_cost_no_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: int
) -> None:
    """The first partition often takes nearly all bytes, and leaves too few for another batch."""

    def body(wire: Wire) -> None:
        batch = batch_of(4_000)
        for _ in range(50):
            wire.request(produce_frame(batch))
            wire.response()
        request = fetch_frame(1 << 20, PARTITIONS, len(batch) + rest)
        for _ in range(3):
            wire.request(request)
            wire.response()
        calls = kernel_calls(wire, request)
        answer = decode(FetchResponse, wire.response()[5:], FETCH_VERSION)
        sizes = [len(row.records) for row in answer.responses[0].partitions]
        assert sizes == [len(batch), 0, 0, 0, 0, 0]
        # The first partition's records and their end; for the others, the size of a batch.
        assert calls["pread"] <= 4 + (PARTITIONS - 1 if rest else 0)
        used = python_calls(lambda: wire.request(request))
        wire.response()
        assert used <= 175, f"{used} Python calls"

    run(tmp_path, monkeypatch, body)


def test_fetch_runs_a_bounded_number_of_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        wire.request(produce_frame(batch_of(4_000)))
        wire.response()
        counts = []
        for partitions in (1, PARTITIONS):
            request = fetch_frame(8_000, partitions)
            for _ in range(3):
                wire.request(request)
                wire.response()
            counts.append(python_calls(lambda request=request: wire.request(request)))
            wire.response()
        per_partition = (counts[1] - counts[0]) / (PARTITIONS - 1)
        assert per_partition <= 10, f"{per_partition} Python calls for each further partition"
        assert counts[0] <= 68, f"{counts[0]} Python calls for a request of one partition"

    run(tmp_path, monkeypatch, body)


def test_partitions_without_news_cost_few_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cost of each fetch by a consumer that has read all logs but one to the end."""

    def body(wire: Wire) -> None:
        wire.request(produce_frame(batch_of(4_000)))
        wire.response()
        end = 4  # it has this many records
        counts = []
        for partitions in (1, PARTITIONS):
            request = fetch_frame(8_000, partitions, offset=end)
            for _ in range(3):
                wire.request(request)
                wire.response()
            counts.append(python_calls(lambda request=request: wire.request(request)))
            answer = decode(FetchResponse, wire.response()[5:], FETCH_VERSION)
            assert not any(row.records for row in answer.responses[0].partitions)
        per_partition = (counts[1] - counts[0]) / (PARTITIONS - 1)
        assert per_partition <= 4, f"{per_partition} Python calls for each further partition"

    run(tmp_path, monkeypatch, body)


def group_frame(request: Any, version: int, *, flexible: bool = False) -> bytes:
    api_key = schema_of(type(request)).api_key
    assert api_key is not None
    header = int(api_key).to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\1c"
    if flexible:
        header += b"\0"  # no tagged fields
    body = encode(request, version)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def joining(member_id: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="group",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(100))],
    )


async def form_groups(broker: Broker) -> None:
    """Have the broker coordinate groups, and form a classic one of one member."""
    services = broker.rooms.services
    coordinator = services.group_coordinator
    await services.topics.ensure_internal_topic(GROUP_METADATA_TOPIC)
    while not coordinator.runtime.active():
        await asyncio.sleep(0.01)
    joined = coordinator.join_group(
        joining(""),
        client_id="c",
        client_host="/127.0.0.1",
        require_member_id=False,
        can_skip_assignment=False,
        may_describe=lambda name: True,
    )
    assert isinstance(joined, WaitingJoin)
    member_id = (await joined.answer).member_id
    mine = SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(100))
    synced = coordinator.sync_group(
        SyncGroupRequest(group_id="group", generation_id=1, member_id=member_id, assignments=[mine])
    )
    answer = synced if isinstance(synced, SyncGroupResponse) else await synced
    assert answer.error_code == 0


def member_of(wire: Wire) -> str:
    """The member of the classic group."""
    ((_, shard),) = wire.broker.rooms.services.group_coordinator.runtime.active()
    group = shard.groups["group"]
    assert isinstance(group, Group)
    return next(iter(group.members))


def test_heartbeat_runs_a_bounded_number_of_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        member_id = member_of(wire)
        beat = group_frame(
            HeartbeatRequest(group_id="group", generation_id=1, member_id=member_id), 3
        )
        for _ in range(3):
            wire.request(beat)
            assert decode(HeartbeatResponse, wire.response()[4:], 3).error_code == 0
        used = python_calls(lambda: wire.request(beat))
        wire.response()
        assert used <= 77, f"{used} Python calls"

    run(tmp_path, monkeypatch, body, prepare=form_groups, **GROUPS)


def test_join_that_waits_runs_a_bounded_number_of_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a member that joins again: the rebalance is not complete with the one whose id was requested for it."""

    def body(wire: Wire) -> None:
        member_id = member_of(wire)
        wire.request(group_frame(joining(""), 5))
        assert decode(JoinGroupResponse, wire.response()[4:], 5).error_code == 79
        join = group_frame(joining(member_id), 5)
        used = python_calls(lambda: wire.request(join))
        assert used <= 104, f"{used} Python calls"

    run(tmp_path, monkeypatch, body, prepare=form_groups, **GROUPS)


def test_heartbeat_of_the_consumer_protocol_runs_a_bounded_number_of_python_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(wire: Wire) -> None:
        def beat(epoch: int, **fields: Any) -> bytes:
            request = ConsumerGroupHeartbeatRequest(
                group_id="new", member_id="m", member_epoch=epoch, **fields
            )
            return group_frame(request, 1, flexible=True)

        wire.request(
            beat(
                0, rebalance_timeout_ms=60_000, subscribed_topic_names=["hot"], topic_partitions=[]
            )
        )
        joined = decode(ConsumerGroupHeartbeatResponse, wire.response()[5:], 1)
        assert joined.error_code == 0
        stays = beat(joined.member_epoch)
        for _ in range(3):
            wire.request(stays)
            assert decode(ConsumerGroupHeartbeatResponse, wire.response()[5:], 1).error_code == 0
        used = python_calls(lambda: wire.request(stays))
        wire.response()
        assert used <= 84, f"{used} Python calls"

    run(tmp_path, monkeypatch, body, prepare=form_groups, **GROUPS)
