"""Splitting a stream into frames, with plain memory and with the broker's."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.errors import BadLength
from kwire.framing import FRAME_SIZE, FrameReader, PlainMemory
from server.net.frame_memory import FrameMemory


class Owner:
    blocked = False

    def room(self) -> None: ...

    def evict(self, reason: str) -> None:
        raise AssertionError(reason)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def deliver(reader: FrameReader, data: bytes, piece: int) -> list[bytes]:
    """Receive `data` as from a socket, at most `piece` bytes at a time."""
    found = []
    view = memoryview(data)
    while view:
        buffer = reader.get_buffer()
        assert buffer
        part = view[: min(piece, len(buffer))]
        buffer[: len(part)] = part
        buffer.release()
        view = view[len(part) :]
        reader.advance(len(part))
        while (got := reader.next_frame()) is not None:
            found.append(bytes(got))
            got.release()
        reader.rest()
    return found


memories = [PlainMemory, lambda: PlainMemory(16), lambda: FrameMemory(8 * 1024 * 1024)]


@pytest.mark.parametrize("memory", memories)
@given(
    sizes=st.lists(st.integers(0, 300_000) | st.integers(0, 20), max_size=6),
    piece=st.integers(1, 400_000) | st.integers(900, 100_000),
)
@settings(max_examples=30, deadline=None)
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    memory: Callable[[], Any], sizes: list[int], piece: int
) -> None:
    piece = max(piece, sum(sizes) // 300)
    payloads = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    reader = FrameReader(memory(), 1_000_000, Owner())
    assert deliver(reader, b"".join(map(frame, payloads)), piece) == payloads
    assert reader.held_bytes == 0


def test_unread_frames_stay_when_the_caller_stops_early() -> None:
    memory = FrameMemory(8 * 1024 * 1024)
    reader = FrameReader(memory, 1000, Owner())
    buffer = reader.get_buffer()
    assert buffer
    data = frame(b"one") + frame(b"two") + frame(b"three")[:5]
    buffer[: len(data)] = data
    buffer.release()
    reader.advance(len(data))
    found = []
    for _ in range(2):
        got = reader.next_frame()
        assert got is not None
        found.append(bytes(got))
        got.release()
        reader.rest()
    assert found == [b"one", b"two"]
    assert deliver(reader, frame(b"three")[5:], 100) == [b"three"]
    assert memory.used == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 1001, 2**31 - 1])
def test_impossible_size_is_refused_at_once(size: int) -> None:
    reader = FrameReader(PlainMemory(), 1000)
    reader.feed(struct.pack(">i", size))
    with pytest.raises(BadLength) as caught:
        reader.next_frame()
    assert caught.value.path == FRAME_SIZE


def test_memory_follows_what_arrived_not_what_was_announced() -> None:
    memory = FrameMemory(64 * 1024 * 1024)
    readers = [FrameReader(memory, 100_000_000, Owner()) for _ in range(250)]
    for reader in readers:
        deliver(reader, struct.pack(">i", 90_000_000) + b"ABCD", 100)
    assert memory.used == 250 * 8
    for reader in readers:
        reader.close()
    assert memory.used == 0


def test_idle_reader_holds_no_memory() -> None:
    memory = FrameMemory(64 * 1024 * 1024)
    reader = FrameReader(memory, 1000, Owner())
    deliver(reader, frame(b"x" * 500) * 3, 1000)
    assert reader._block is None
    assert memory.used == 0


def test_large_frames_after_the_first_are_received_without_a_copy() -> None:
    """The block is chosen by the size of the last frame, so the next one begins and ends in it."""
    memory = FrameMemory(64 * 1024 * 1024)
    reader = FrameReader(memory, 2_000_000, Owner())
    payload = b"p" * 800_000
    deliver(reader, frame(payload), 1_000_000)
    homes = []
    home = memory.home

    def counted(*arguments: Any) -> Any:
        homes.append(arguments)
        return home(*arguments)

    memory.home = counted  # type: ignore[assignment,method-assign]
    assert deliver(reader, frame(payload) * 3, 500_000) == [payload] * 3
    assert homes == []


@pytest.mark.parametrize("size", [100, 60_000, 100_000, 1_000_000])
def test_view_that_outlives_its_frame_is_counted_however_the_frame_arrived(size: int) -> None:
    """Batches that wait in the memory of their requests are bounded by this count."""
    memory = FrameMemory(64 * 1024 * 1024)
    reader = FrameReader(memory, 2 * size, Owner())
    sent = memoryview(frame(bytes(size)))
    kept = None
    while kept is None:
        done = reader.feed(sent[: max(size // 9, 5)])
        sent = sent[done:]
        kept = reader.next_frame()
        reader.rest()
    assert memory.used >= memory.leaked >= size
    kept.release()
    del kept
    assert memory.used == memory.leaked == 0


def test_view_that_outlives_its_frame_is_never_written_over() -> None:
    memory = FrameMemory(64 * 1024 * 1024)
    reader = FrameReader(memory, 1000, Owner())
    reader.feed(frame(b"first"))
    kept = reader.next_frame()
    assert kept is not None
    reader.rest()
    assert memory.leaked > 0
    assert deliver(reader, frame(b"second"), 100) == [b"second"]
    assert bytes(kept) == b"first"
    kept.release()
    del kept
    assert memory.leaked == 0


def test_frame_that_grows_keeps_its_age() -> None:
    memory = FrameMemory(64 * 1024 * 1024)
    old, young = (FrameReader(memory, 1_000_000, Owner()) for _ in range(2))
    deliver(old, frame(b"o" * 60_000)[:10], 100)
    deliver(young, frame(b"y" * 60_000)[:10], 100)
    deliver(old, frame(b"o" * 60_000)[10:40_000], 600)
    blocks = list(memory.tiny.incomplete.values())
    assert [block.end for block in blocks] == [40_000, 10]
    assert all(block.charged == len(block.view) for block in blocks)
