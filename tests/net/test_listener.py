"""Listener, transport and session on real loopback sockets."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import socket
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from server.clock import SystemClock
from server.executor import Executor
from server.net import platform, transport
from server.net.connection_info import ConnectionInfo
from server.net.frame_memory import FrameMemory
from server.net.limits import NetLimits
from server.net.log_limit import LineLimiter
from server.net.output_memory import OutputMemory
from server.net.rotation import Rotation
from server.net.session import Session
from server.net.sockets import bind
from tests.net.echo import Echo, request
from tests.net.sockets import FileSlice, Peer, bound, listening, on_loop, until

MIB = 1024 * 1024


@on_loop
async def test_pipelined_requests_of_all_sizes_come_back_in_order() -> None:
    sizes = [0, 1, 100, 5000, 70_000, 300_000, 1_500_000, 1_500_000, 10, 300_000, 5_000_000]
    async with listening(Echo()) as listener:
        peer = await Peer.connect(listener)

        async def send() -> None:
            for number, size in enumerate(sizes):
                await peer.send(request(number, bytes([number]) * size))

        sending = asyncio.ensure_future(send())
        for number, size in enumerate(sizes):
            frame = await peer.frame()
            assert frame == struct.pack(">i", number) + bytes([number]) * size
        await sending
        assert listener.memory.used == 0
        peer.close()


@pytest.mark.parametrize("politely", [True, False])
@on_loop
async def test_requests_of_clients_that_wait_for_nothing_before_they_leave_are_taken_up(
    politely: bool,
) -> None:
    """As producers with acks=0 do; a client that leaves a reply unread resets the connection."""
    asked = b"".join(request(number, b"x" * 100, key=98) for number in range(1, 500))
    echo = Echo()
    async with listening(echo) as listener:
        peers = [await Peer.connect(listener) for _ in range(10)]
        for number, peer in enumerate(peers, 1):
            await peer.send(request(0))
            if politely:
                await peer.frame()
            else:
                await until(lambda number=number: len(echo.seen) == number)  # type: ignore[misc]
        for peer in peers:
            await peer.send(asked)
            peer.close()
        await until(lambda: not listener.sessions)
    assert len(echo.seen) == 10 * 500


class CountedSocket:
    """Counts the calls that a transport makes."""

    def __init__(self, sock: socket.socket, calls: Counter[str]) -> None:
        self._sock = sock
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._sock, name)


@pytest.mark.parametrize(
    ("size", "count"), [(100, 1), (100, 16), (16_500, 1), (16_500, 10), (98_500, 2), (240_000, 1)]
)
@on_loop
async def test_requests_that_are_there_take_one_receive_and_one_send(size: int, count: int) -> None:
    """Received by a direct call rather than on readiness, so that everything has arrived before."""
    calls: Counter[str] = Counter()
    server, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    for sock in (server, peer):
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1_000_000)
    under_test = transport.SocketTransport(
        asyncio.get_running_loop(),
        CountedSocket(server, calls),  # type: ignore[arg-type]
        Executor(),
    )
    echo = Echo()
    session = Session(
        under_test,
        ConnectionInfo("id"),
        echo,
        FrameMemory(64 * MIB),
        NetLimits(),
        SystemClock(),
        LineLimiter(logging.getLogger("server.net"), SystemClock().monotonic_ms),
        lambda session: None,
        output=OutputMemory(64 * MIB, SystemClock().monotonic_ms),
        rotation=Rotation(),
    )
    under_test.start(session)
    echo.answer = b"done"
    for turn in range(3):
        calls.clear()
        data = b"".join(request(turn * count + n, bytes(size)) for n in range(count))
        assert peer.send(data) == len(data)
        await until(lambda turn=turn: len(echo.seen) == (turn + 1) * count)
        assert calls == {"recv_into": 1, "send" if count == 1 else "sendmsg": 1}
    under_test.close()
    peer.close()


class TakingSocket:
    """A socket that accepts everything immediately and is always writable."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.taken = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def sendmsg(self, parts: list[bytes], *_: object) -> int:
        size = sum(map(len, parts))
        self.taken += size
        return size

    def send(self, part: bytes) -> int:
        return self.sendmsg([part])


@on_loop
async def test_turn_that_ends_before_an_empty_part_does_not_hold_up_what_is_sent_next() -> None:
    """A reply may end in an empty part; a turn that ended there must not stall the connection."""
    server, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    server.setblocking(False)
    sock = TakingSocket(server)
    under_test = transport.SocketTransport(
        asyncio.get_running_loop(),
        sock,  # type: ignore[arg-type]
        Executor(),
    )
    two_turns = 2 * transport.TURN_BYTES
    pieces = [bytes(transport.GATHER_BYTES)] * (two_turns // transport.GATHER_BYTES)
    under_test.send([*pieces, b""])
    await until(lambda: not under_test.unsent_bytes)
    under_test.send([b"next"])
    await until(lambda: not under_test.unsent_bytes)
    assert sock.taken == two_turns + len(b"next")
    under_test.close()
    peer.close()


@on_loop
async def test_port_zero_takes_a_free_port_and_peers_are_counted() -> None:
    async with listening(Echo()) as listener:
        assert listener.port > 0
        peers = [await Peer.connect(listener) for _ in range(3)]
        for peer in peers:
            await peer.send(request(1))
            await peer.frame()
        assert listener.quotas.count == len(listener.sessions) == 3
        session = next(iter(listener.sessions))
        assert session.info.local_port == listener.port
        assert session.info.client_host == "127.0.0.1"
        for peer in peers:
            peer.close()
        await until(lambda: not listener.sessions)
        assert listener.quotas.count == 0


@on_loop
async def test_bound_listener_knows_its_port_and_serves_once_started() -> None:
    executor = Executor()
    listener = bound(Echo(), NetLimits(), executor)
    assert listener.port > 0
    peer = await Peer.connect(listener)
    await peer.send(request(1))
    await asyncio.sleep(0)
    assert not listener.sessions
    listener.start()
    assert await peer.frame()
    peer.close()
    await listener.close()


@on_loop
async def test_wildcard_listens_on_both_families() -> None:
    async with listening(Echo(), host="") as listener:
        hosts = ["127.0.0.1"] + (["::1"] if socket.has_dualstack_ipv6() else [])
        for host in hosts:
            try:
                peer = await Peer.connect(listener, host)
            except OSError:  # a machine may have IPv6 but no ::1
                continue
            await peer.send(request(1))
            await peer.frame()
            (session,) = listener.sessions
            assert session.info.client_host == session.info.local_host == host
            peer.close()
            await until(lambda: not listener.sessions)


@on_loop
async def test_address_in_use_is_named() -> None:
    async with listening(Echo()) as listener:
        sock = bind("127.0.0.1", 0)
        sock.listen()
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{listener.port}"):
            bind("127.0.0.1", listener.port)
        sock.close()


@on_loop
async def test_connections_of_one_address_are_bounded() -> None:
    limits = NetLimits(max_connections_per_ip=5, max_connections_per_ip_overrides={"127.0.0.1": 2})
    async with listening(Echo(), limits) as listener:
        peers = [await Peer.connect(listener) for _ in range(2)]
        for peer in peers:
            await peer.send(request(1))
            await peer.frame()
        third = await Peer.connect(listener)
        assert await third.ended()
        for peer in (*peers, third):
            peer.close()


@on_loop
async def test_connection_above_the_maximum_waits_until_one_goes() -> None:
    async with listening(Echo(), NetLimits(max_connections=1)) as listener:
        first = await Peer.connect(listener)
        await first.send(request(1))
        await first.frame()
        second = await Peer.connect(listener)
        await second.send(request(2))
        answer = asyncio.ensure_future(second.frame())
        await first.send(request(3))
        await first.frame()
        assert not answer.done()
        first.close()
        assert (await answer)[:4] == struct.pack(">i", 2)
        second.close()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        bytes.fromhex("160301020001000000"),
        bytes.fromhex("95a172548ddbcfff"),
        b"\xff" * 100,
    ],
)
@on_loop
async def test_strangers_lose_their_connection_and_nothing_else(data: bytes) -> None:
    async with listening(Echo(), NetLimits(request_max_bytes=1000)) as listener:
        honest = await Peer.connect(listener)
        stranger = await Peer.connect(listener)
        await stranger.send(b"\xff" + data[1:] if data[0] < 0x16 else data)
        assert await stranger.ended()
        await honest.send(request(1))
        assert await honest.frame()
        honest.close()
        stranger.close()


@on_loop
async def test_peer_that_sends_half_a_request_and_leaves_frees_its_memory() -> None:
    async with listening(Echo()) as listener:
        peer = await Peer.connect(listener)
        await peer.send(request(1, b"x" * 500_000)[:300_000])
        await until(lambda: listener.memory.used >= 300_000)
        peer.close()
        await until(lambda: not listener.sessions)
        assert listener.memory.used == 0


@on_loop
async def test_connections_that_ended_are_freed_without_a_collection_of_garbage() -> None:
    def sessions() -> int:
        return sum(type(each) is Session for each in gc.get_objects())

    async with listening(Echo()) as listener:
        gc.collect()
        gc.disable()
        try:
            before = sessions()
            for ends_it in (Peer.close, lambda _: next(iter(listener.sessions)).close("", None)):
                peer = await Peer.connect(listener)
                await peer.send(request(1))
                await peer.frame()
                assert sessions() == before + 1
                ends_it(peer)
                await until(lambda: not listener.sessions)
                assert sessions() == before
                peer.close()
        finally:
            gc.enable()


@on_loop
async def test_peer_that_does_not_read_stops_being_served(tmp_path: Path) -> None:
    echo = Echo()
    async with listening(echo, NetLimits(max_unsent_bytes=100_000)) as listener:
        peer = await Peer.connect(listener)
        sending = asyncio.ensure_future(
            peer.send(b"".join(request(n, b"b" * 50_000) for n in range(1000)))
        )
        for _ in range(200):
            await asyncio.sleep(0)
        (session,) = listener.sessions
        served = len(echo.seen)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(echo.seen) == served < 1000
        assert session.transport.unsent_bytes < 100_000 + 2 * 60_000
        for number in range(1000):
            assert (await peer.frame())[:4] == struct.pack(">i", number)
        await sending
        peer.close()


def stored(tmp_path: Path, size: int) -> Path:
    path = tmp_path / "segment.log"
    path.write_bytes(os.urandom(size))
    return path


@pytest.mark.parametrize("size", [0, 1, 30_000, 200_000, 6_000_000])
@on_loop
async def test_stored_slices_are_sent_between_buffers(tmp_path: Path, size: int) -> None:
    path = stored(tmp_path, size + 10)
    data = path.read_bytes()
    echo = Echo()
    async with listening(echo) as listener:
        peer = await Peer.connect(listener)
        slices = []
        for number in range(3):
            slices += [FileSlice(path, 3, size), FileSlice(path, 5, min(size, 100))]
            echo.prefix = [b"head", slices[-2], b"middle", slices[-1]]
            await peer.send(request(number, b"tail"))
            expected = b"head" + data[3 : 3 + size] + b"middle" + data[5 : 5 + min(size, 100)]
            assert await peer.frame() == struct.pack(">i", number) + expected + b"tail"
        assert all(each.closed for each in slices)
        peer.close()


@on_loop
async def test_cold_slice_is_read_by_a_thread_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, 3_000_000)
    cold = {0, 1}
    read: list[tuple[int, int]] = []
    fault_in = platform.fault_in

    def is_cached(fd: int, position: int, count: int) -> bool:
        return position // transport.CHUNK_BYTES not in cold

    def reading(fd: int, position: int, count: int) -> None:
        read.append((position, count))
        fault_in(fd, position, count)

    monkeypatch.setattr(platform, "is_cached", is_cached)
    monkeypatch.setattr(platform, "fault_in", reading)
    echo = Echo()
    async with listening(echo) as listener:
        peer = await Peer.connect(listener)
        echo.prefix = [FileSlice(path, 0, 3_000_000)]
        await peer.send(request(1, b"tail"))
        assert await peer.frame() == struct.pack(">i", 1) + path.read_bytes() + b"tail"
        assert [position for position, _ in read] == [0, transport.CHUNK_BYTES]
        echo.prefix = []
        await peer.send(request(2))
        assert await peer.frame()
        peer.close()


@on_loop
async def test_peer_that_leaves_during_a_cold_read_frees_the_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path, 100_000)
    monkeypatch.setattr(platform, "is_cached", lambda *_: False)
    echo = Echo()
    async with listening(echo) as listener:
        loop = asyncio.get_running_loop()
        reading: asyncio.Future[None] = loop.create_future()
        monkeypatch.setattr(Executor, "in_thread", lambda *_: reading)
        peer = await Peer.connect(listener)
        one = FileSlice(path, 0, 100_000)
        two = FileSlice(path, 0, 100_000)
        echo.prefix = [one, two]
        await peer.send(request(1))
        await until(lambda: bool(echo.seen))
        peer.close()
        await until(lambda: not listener.sessions)
        assert two.closed
        assert not one.closed, "a thread still reads from its descriptor"
        reading.set_result(None)
        await asyncio.sleep(0)
        assert one.closed


@on_loop
async def test_slice_whose_file_was_cut_ends_the_connection(tmp_path: Path) -> None:
    path = stored(tmp_path, 100_000)
    echo = Echo()
    async with listening(echo) as listener:
        peer = await Peer.connect(listener)
        echo.prefix = [FileSlice(path, 0, 200_000)]
        await peer.send(request(1))
        assert await peer.frame() != b""
        assert await peer.ended()
        peer.close()


@on_loop
async def test_reader_that_has_not_read_a_file_when_it_is_removed_is_disconnected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = stored(tmp_path, 3_000_000)
    echo = Echo()
    async with listening(echo) as listener:
        peer = await Peer.connect(listener)
        echo.prefix = [FileSlice(path, 0, 3_000_000) for _ in range(10)]
        await peer.send(request(1))
        (session,) = listener.sessions
        await until(lambda: bool(session.transport.unsent_bytes))
        session.check_idle(session.last_active_ms)
        assert not session.closed
        path.unlink()
        session.check_idle(session.last_active_ms)
        assert session.closed
        assert "has not read records before they were deleted" in caplog.text
        peer.close()


def test_page_cache_is_asked_about_real_files(tmp_path: Path) -> None:
    path = stored(tmp_path, 1_000_000)
    with path.open("rb") as file:
        fd = file.fileno()
        assert platform.is_cached(fd, 0, 1_000_000)
        platform.fault_in(fd, 0, 1_000_000)
        assert bytes(platform.read_cached(fd, 7, 1000) or b"") == path.read_bytes()[7:1007]
        assert platform.read_cached(fd, 999_999, 2) is None


@on_loop
async def test_close_sends_what_is_ready() -> None:
    async with listening(Echo()) as listener:
        peer = await Peer.connect(listener)
        await peer.send(request(1, b"z" * 3_000_000))
        head = await peer.read(4)
        closing = asyncio.ensure_future(listener.close())
        frame = await peer.read(struct.unpack(">i", head)[0])
        assert len(frame) == 3_000_004
        await closing
        assert await peer.ended()
        peer.close()


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


async def crowd_against_honest(
    crowd: int, announced: int, sent: int, bound: int, bodies: tuple[int, ...]
) -> int:
    """Let many connections with unfinished frames compete with an honest one; return the memory used."""
    limits = NetLimits(queued_max_request_bytes=bound, stall_ms=300)
    before = resident_bytes()
    highest = before
    async with listening(Echo(), limits) as listener:
        memory = listener.memory
        chunk = bytes(256 * 1024)
        peers = [await Peer.connect(listener) for _ in range(crowd)]

        async def push(peer: Peer) -> None:
            try:
                await peer.send(struct.pack(">i", announced))
                left = sent
                while left:
                    await peer.send(chunk[: min(left, len(chunk))])
                    left -= min(left, len(chunk))
            except OSError:
                pass

        pushing = [asyncio.ensure_future(push(peer)) for peer in peers]
        full = crowd * sent > bound
        await until(lambda: memory.waiting if full else len(memory.large.incomplete) == crowd)
        honest = await Peer.connect(listener)
        for number, size in enumerate(bodies):
            body = bytes([number % 251]) * size
            sending = asyncio.ensure_future(honest.send(request(number, body)))
            frame = await asyncio.wait_for(honest.frame(), 25)
            assert frame == struct.pack(">i", number) + body
            await sending
            highest = max(highest, resident_bytes())
            assert memory.used <= bound + announced + crowd * 8192
        for task in pushing:
            task.cancel()
        await asyncio.gather(*pushing, return_exceptions=True)
        for peer in peers:
            peer.close()
        honest.close()
    return highest - before


SMALL = (1000, 90_000, 1_000_000) * 20


@on_loop
async def test_announced_bytes_take_no_memory() -> None:
    taken = await crowd_against_honest(250, 90_000_000, 4, 64 * MIB, (*SMALL, 5_000_000))
    assert taken < 60_000_000


@on_loop
async def test_frames_short_of_their_last_byte_are_bounded_and_others_go_on() -> None:
    taken = await crowd_against_honest(30, 9_000_000, 8_999_999, 32 * MIB, SMALL)
    assert taken < 60_000_000


@on_loop
async def test_large_frame_comes_through_a_crowd_that_never_ends() -> None:
    taken = await crowd_against_honest(8, 9_000_000, 8_999_999, 8 * MIB, (2_000_000,))
    assert taken < 60_000_000


@pytest.mark.slow
@on_loop
async def test_250_frames_of_90_mb_short_of_their_last_byte_are_bounded() -> None:
    taken = await crowd_against_honest(250, 90_000_000, 89_999_999, 64 * MIB, SMALL * 5)
    assert taken < 220_000_000
