"""Which connections may read when memory for frames is short."""

from __future__ import annotations

import struct

from kwire.framing import FrameReader
from server.net.frame_memory import FrameMemory

MIB = 1024 * 1024
LIMIT = 8 * MIB


class Peer:
    """A connection with more to send than is accepted."""

    def __init__(self, memory: FrameMemory, announced: int, willing: int | None = None) -> None:
        self.blocked = False
        self.evicted = ""
        self.woken = 0
        self.reader = FrameReader(memory, 100 * MIB, self)
        self.left = 4 + announced if willing is None else willing
        self._size = struct.pack(">i", announced)
        self.received = 0
        self.complete = False

    def room(self) -> None:
        self.woken += 1

    def evict(self, reason: str) -> None:
        self.evicted = reason
        self.reader.close()

    def send(self, most: int = 1 << 40) -> int:
        """Send until nothing more is accepted or left; return the number of bytes sent."""
        sent = 0
        while self.left and most and not self.evicted:
            buffer = self.reader.get_buffer()
            if buffer is None:
                break
            count = min(len(buffer), self.left, most)
            size = self._size[self.received : self.received + count]
            buffer[: len(size)] = size
            buffer.release()
            self.reader.advance(count)
            self.received += count
            self.left -= count
            most -= count
            sent += count
            frame = self.reader.next_frame()
            if frame is not None:
                self.complete = True
                frame.release()
            self.reader.rest()
        return sent


def test_large_frames_stop_at_their_share_and_the_oldest_goes_on() -> None:
    memory = FrameMemory(LIMIT)
    peers = [Peer(memory, 6 * MIB) for _ in range(8)]
    for _ in range(600):
        for peer in peers:
            peer.send(100_000)
    assert peers[0].complete
    assert all(peer.complete for peer in peers)
    assert memory.used == 0


def test_frames_that_never_end_take_no_more_than_share_and_one() -> None:
    memory = FrameMemory(LIMIT)
    peers = [Peer(memory, 6 * MIB, willing=6 * MIB) for _ in range(50)]
    most = 0
    for _ in range(50):
        for peer in peers:
            peer.send(500_000)
            most = max(most, memory.used)
    assert not any(peer.complete for peer in peers)
    assert memory.waiting
    assert most <= LIMIT * 5 // 8 + 6 * MIB + 50 * 4096


def test_small_frames_pass_while_large_ones_fill_their_share() -> None:
    memory = FrameMemory(LIMIT)
    hoarders = [Peer(memory, 6 * MIB, willing=6 * MIB) for _ in range(50)]
    for _ in range(50):
        for peer in hoarders:
            peer.send(500_000)
    for size in (100, 5_000, 100_000, LIMIT // 32 - 4):
        honest = Peer(memory, size)
        honest.send()
        assert honest.complete, size


def test_tiny_frames_pass_while_small_ones_fill_their_share() -> None:
    memory = FrameMemory(LIMIT)
    size = LIMIT // 32 - 4
    hoarders = [Peer(memory, size, willing=size) for _ in range(100)]
    for _ in range(20):
        for peer in hoarders:
            peer.send(50_000)
    assert memory.small.paused
    honest = Peer(memory, 5_000)
    honest.send(4_000)
    honest.send()
    assert honest.complete


def test_oldest_that_stalls_while_others_wait_is_closed_and_the_next_woken() -> None:
    memory = FrameMemory(LIMIT, stall_ms=2000)
    stalled = Peer(memory, 6 * MIB, willing=5 * MIB)
    stalled.send()
    waiting = Peer(memory, 6 * MIB)
    waiting.send()
    assert memory.waiting and not waiting.complete
    memory.tick(1000)
    memory.tick(2900)
    assert not stalled.evicted
    memory.tick(3000)
    assert "6291460 bytes is incomplete at 5242880" in stalled.evicted
    assert waiting.woken == 1
    waiting.send()
    assert waiting.complete
    assert not memory.waiting and memory.used == 0


def test_oldest_that_progresses_is_not_closed() -> None:
    memory = FrameMemory(LIMIT, stall_ms=2000)
    slow = Peer(memory, 6 * MIB)
    slow.send(5 * MIB)
    other = Peer(memory, 6 * MIB)
    other.send()
    now_ms = 0
    while not slow.complete:
        now_ms += 1000
        slow.send(100_000)
        memory.tick(now_ms)
        assert not slow.evicted
    other.send()
    assert other.complete


def test_frame_nobody_waits_for_may_stall() -> None:
    memory = FrameMemory(LIMIT, stall_ms=2000)
    slow = Peer(memory, 3 * MIB, willing=2 * MIB)
    slow.send()
    for now_ms in range(0, 50_000, 1000):
        memory.tick(now_ms)
    assert not slow.evicted


def test_crowd_that_never_ends_is_worked_off_in_seconds() -> None:
    memory = FrameMemory(LIMIT, stall_ms=2000, min_stall_ms=100)
    crowd = [Peer(memory, 6 * MIB, willing=6 * MIB) for _ in range(100)]
    honest = Peer(memory, 6 * MIB)
    now_ms = 0
    for peer in crowd:
        peer.send()
    honest.send()
    while not honest.complete:
        now_ms += 100
        memory.tick(now_ms)
        for peer in crowd:
            peer.send()
        honest.send()
        assert not honest.evicted
        assert now_ms < 30_000


def test_frame_too_slow_for_its_size_is_closed() -> None:
    memory = FrameMemory(LIMIT, frame_timeout_ms=60_000)
    dripping = Peer(memory, 1000)
    quick = Peer(memory, 1000)
    now_ms = 0
    while now_ms < 59_000:
        now_ms += 1000
        dripping.send(1)
        memory.tick(now_ms)
    quick.send(10)
    assert not dripping.evicted
    memory.tick(62_000)
    assert "took too long" in dripping.evicted
    assert not quick.evicted


def test_time_in_which_a_connection_may_not_read_does_not_count() -> None:
    memory = FrameMemory(LIMIT, frame_timeout_ms=60_000)
    peer = Peer(memory, 1000)
    peer.send(100)
    peer.blocked = True
    for now_ms in range(0, 300_000, 1000):
        memory.tick(now_ms)
    assert not peer.evicted
    peer.blocked = False
    for now_ms in range(300_000, 400_000, 1000):
        memory.tick(now_ms)
    assert peer.evicted


def test_connection_that_does_not_read_for_our_reasons_holds_nobody_up() -> None:
    memory = FrameMemory(LIMIT, stall_ms=2000)
    busy = Peer(memory, 6 * MIB)
    busy.send(5 * MIB)
    busy.blocked = True
    others = [Peer(memory, 6 * MIB) for _ in range(3)]
    for _ in range(4):
        for peer in others:
            peer.send()
    assert all(peer.complete for peer in others)
    assert not busy.evicted


def test_short_memory_takes_only_a_little_from_a_new_connection() -> None:
    memory = FrameMemory(LIMIT)
    hoarders = [Peer(memory, 90 * MIB, willing=10 * MIB) for _ in range(3)]
    for peer in hoarders:
        peer.send()
    assert memory.short
    late = Peer(memory, 90 * MIB)
    buffer = late.reader.get_buffer()
    assert buffer is not None and len(buffer) == 4096


def test_closing_gives_all_back() -> None:
    memory = FrameMemory(LIMIT)
    peers = [Peer(memory, size, willing=size) for size in (10, 5_000, 100_000, MIB, 90 * MIB)]
    for peer in peers:
        peer.send(3_000_000)
    assert memory.used > 0
    for peer in peers:
        peer.reader.close()
    assert (memory.used, memory.waiting, memory.short) == (0, False, False)
    assert not any(tier.incomplete for tier in memory.tiers)


def test_pool_stays_within_its_bound() -> None:
    memory = FrameMemory(64 * MIB, pool_bytes=4 * MIB)
    peers = [Peer(memory, 900_000) for _ in range(20)]
    for peer in peers:
        peer.send(500_000)
    for peer in peers:
        peer.send()
    assert all(peer.complete for peer in peers)
    assert 0 < memory.pooled <= 4 * MIB


def test_complete_frames_that_are_still_at_work_count_and_the_oldest_waits_for_them() -> None:
    memory = FrameMemory(LIMIT)
    size = 3 * MIB
    at_work = []
    honest = None
    for _ in range(10):
        peer = Peer(memory, size, willing=0)
        peer.left = 4 + size
        while (buffer := peer.reader.get_buffer()) is not None and peer.left:
            count = min(len(buffer), peer.left)
            head = peer._size[peer.received : peer.received + count]
            buffer[: len(head)] = head
            buffer.release()
            peer.reader.advance(count)
            peer.received += count
            peer.left -= count
            frame = peer.reader.next_frame()
            if frame is not None:
                at_work.append(frame[:])  # as a request keeps it that is decoded in turns
                frame.release()
                peer.reader.rest()
                break
        else:
            honest = peer
            break
    assert honest is not None and memory.waiting
    assert memory.used <= LIMIT * 5 // 8 + size + MIB
    for now_ms in range(0, 20_000, 100):
        memory.tick(now_ms)
    assert not honest.evicted  # it is not its fault
    while at_work:
        at_work.pop().release()
    memory.tick(20_100)
    honest.send()
    assert honest.complete
