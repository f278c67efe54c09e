"""The memory of all frames in flight: pooled, bounded, and given to the oldest frame first when it is short.

Memory is committed only for bytes that have arrived. A frame of any announced size begins in a block that
the connections use in turn; a frame that has to stay moves to a block of its own, its home: up to 64 KiB a
bytearray that grows with the bytes that arrive, above that an anonymous mapping of the announced size, of
which the kernel commits only pages that were written. Mappings up to 4 MiB are reused, since filling fresh
pages costs ten times as much as filling warm ones; pages that a reused mapping has already committed are
charged to its new holder.

All homes together are bounded by `queued.max.request.bytes`. So that large frames cannot starve small
ones, frames are in tiers by announced size, and a tier may not use what is reserved for the tiers below it:

    tier    announced size      may use, with the tiers above
    large   any                 5/8 of the bound
    small   <= bound / 32       7/8
    tiny    <= bound / 1024     all of it

When a tier has used up its share, reading pauses for its frames. Only the oldest incomplete frame continues,
above the bound if necessary, so that one frame always progresses. It waits, too, while complete frames use the
whole share because long requests are being decoded. While others wait for it, the oldest frame has to progress in
each window of time, or its connection is closed. Each such closing halves the window until a frame completes, so
that many frames that never complete are cleared within seconds.
With a bound of 64 MiB and frames of at most 100 MiB, all frames together stay below 170 MiB.
"""

from __future__ import annotations

import mmap
import sys
import weakref
from sys import getrefcount
from typing import Any, Protocol

#: The shared block: a few requests of 16 KiB batches in one piece.
SCRATCH_BYTES = 256 * 1024
#: How many bytes a connection may read while memory is short, before the size of its frame is known.
SHORT_SCRATCH_BYTES = 4096
GROWING_BYTES = 64 * 1024
POOLED_BYTES = 4 * 1024 * 1024
NO_HUGE_PAGES_BYTES = 2 * 1024 * 1024
#: A smaller read than this is not worth a system call.
SMALLEST_READ_BYTES = 4096
RESUME_BYTES = 64 * 1024
#: While others wait, the oldest frame has to receive this fraction (1/n) of its size in each window.
PROGRESS_PARTS = 32
DEADLINE_SCAN_MS = 1000

MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0
MADV_NOHUGEPAGE = getattr(mmap, "MADV_NOHUGEPAGE", None)


class FrameOwner(Protocol):
    """The connection that a frame belongs to."""

    #: It does not read at present, for reasons that are not the peer's fault.
    blocked: bool

    def room(self) -> None:
        """There may be memory again: resume reading, but not within this call."""
        ...

    def evict(self, reason: str) -> None:
        """Close the connection: its frame holds memory that others wait for, or takes too long."""
        ...


def map_memory(size: int) -> mmap.mmap:
    """Map anonymous private memory, none of it committed before it is written."""
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    if size >= NO_HUGE_PAGES_BYTES and MADV_NOHUGEPAGE is not None:
        try:
            # With transparent huge pages set to "always", writing one byte would commit 2 MiB.
            mapping.madvise(MADV_NOHUGEPAGE)
        except OSError:
            pass
    return mapping


class Growing(bytearray):
    """The home of a frame of at most `GROWING_BYTES`; weak references see when the last view of it is gone."""

    __slots__ = ("__weakref__",)


class Tier:
    """Frames of similar size: the memory they use, and the incomplete ones, oldest first."""

    __slots__ = ("incomplete", "max_frame_bytes", "name", "paused", "share", "used", "window_ms")

    def __init__(self, name: str, max_frame_bytes: int, share: int, window_ms: int) -> None:
        self.name = name
        self.max_frame_bytes = max_frame_bytes
        self.share = share
        self.used = 0
        self.incomplete: dict[int, FrameBlock] = {}
        self.paused = 0
        self.window_ms = window_ms


class FrameBlock:
    """One block: shared by all connections, or (with a tier) the home of one frame.

    Shape: see kwire.framing.Block.
    """

    __slots__ = (
        "buffer",
        "charged",
        "deadline_ms",
        "end",
        "expected",
        "mark_bytes",
        "mark_ms",
        "memory",
        "need",
        "owner",
        "paused",
        "sequence",
        "tier",
        "view",
        "warm",
    )

    def __init__(self, memory: FrameMemory, buffer: mmap.mmap | Growing) -> None:
        self.memory = memory
        self.buffer = buffer
        self.view = memoryview(buffer)
        self.warm = 0  # how much of it is committed, from its beginning
        self.expected = 0  # if shared: how much may be read into it at once
        self.owner: FrameOwner | None = None
        self.tier: Tier | None = None
        self.need = 0
        self.end = 0
        self.charged = 0
        self.sequence = 0  # age, 0 once complete
        self.deadline_ms = 0
        self.paused = False
        self.mark_ms = -1  # when the current window began, and how much had arrived by then
        self.mark_bytes = 0

    def limit(self, end: int, need: int) -> int:
        if self.tier is None:
            return SHORT_SCRATCH_BYTES if self.memory.short else self.expected
        return min(self.memory.may_fill(self, end, need), len(self.view))

    def filled(self, end: int) -> None:
        if end > self.warm:
            self.warm = end
        tier = self.tier
        if tier is None:
            return
        self.end = end
        if end > self.charged:
            self.memory.charge(tier, end - self.charged)
            self.charged = end

    def warmed(self, end: int) -> None:
        self.memory.pooled += end - self.warm
        self.warm = end

    def complete(self) -> None:
        self.memory.completed(self)

    def close(self) -> None:
        if self.tier is not None:
            self.memory.release(self)
        self.memory.give_back(self)


class FrameMemory:
    """All receive memory of a broker; it does no I/O and reads no clock.

    Unit: bytes. `limit_bytes` is `queued.max.request.bytes`, at least 1 MiB. `tick(now_ms)` is
    called about every second, and ten times as often while `waiting`.
    """

    def __init__(
        self,
        limit_bytes: int,
        *,
        now_ms: int = 0,
        pool_bytes: int = 16 * 1024 * 1024,
        stall_ms: int = 2000,
        min_stall_ms: int = 100,
        frame_timeout_ms: int = 60_000,
        min_bytes_per_second: int = 16 * 1024,
    ) -> None:
        self.limit_bytes = limit_bytes = max(limit_bytes, 1024 * 1024)
        self.short = False
        self.pooled = 0
        self.leaked = 0  # held by views that outlived their request
        self._pool_bytes = pool_bytes
        self._stall_ms = stall_ms
        self._min_stall_ms = min_stall_ms
        self._frame_timeout_ms = frame_timeout_ms
        self._min_bytes_per_second = min_bytes_per_second
        self._now_ms = now_ms
        self._scanned_ms = now_ms
        self._sequence = 0
        self._pool: dict[int, list[FrameBlock]] = {}
        self._leaks: dict[int, weakref.ref[Any]] = {}  # by their own ids
        self.large = Tier("large", sys.maxsize, limit_bytes * 5 // 8, stall_ms)
        self.small = Tier("small", limit_bytes // 32, limit_bytes * 7 // 8, stall_ms)
        self.tiny = Tier("tiny", limit_bytes // 1024, limit_bytes, stall_ms)
        self.tiers = (self.large, self.small, self.tiny)
        unseen = FrameBlock(self, Growing(1))
        unseen.view.release()
        # More references to a block's buffer than these are views of it.
        self._unseen_references = getrefcount(unseen.buffer)

    # -- blocks

    def shared(self, expected_bytes: int) -> FrameBlock | None:
        """Return the shared block while it rests in the pool; see kwire.framing.ReceiveMemory."""
        if self.short or expected_bytes > SCRATCH_BYTES:
            return None
        free = self._pool.get(SCRATCH_BYTES)
        return free[-1] if free else None

    def scratch(self, expected_bytes: int) -> FrameBlock:
        """Return the shared block, or a larger one for the connection's next large frame."""
        if SCRATCH_BYTES < expected_bytes <= POOLED_BYTES and not self.short:
            block = self._take(expected_bytes)
            block.expected = expected_bytes
            return block
        block = self._take(SCRATCH_BYTES)
        block.expected = SCRATCH_BYTES
        return block

    def settle(self, block: Any, need: int, end: int, owner: Any) -> bool:
        """Let a frame stay in the block it began in, if that wastes little memory; return whether it does."""
        if self.short or need > len(block.view) or end * 4 < min(need, len(block.view)):
            return False
        block.filled(end)
        self._enroll(block, need, end, owner)
        return True

    def home(
        self, need: int, held: memoryview, owner: Any, complete: bool, grown_from: Any = None
    ) -> FrameBlock:
        """Return a home whose content begins with a copy of `held`; see kwire.framing.ReceiveMemory."""
        size = len(held)
        if need <= GROWING_BYTES:
            block = FrameBlock(self, Growing(max(size, min(need, max(512, 4 * size)))))
            block.warm = len(block.view)
        elif need > POOLED_BYTES or self.short:
            block = FrameBlock(self, map_memory(need))
        else:
            block = self._take(need)
        block.view[:size] = held
        block.filled(size)
        old = grown_from if isinstance(grown_from, FrameBlock) and grown_from.sequence else None
        self._enroll(block, need, size, owner, old)
        if complete:
            self.completed(block)
        return block

    def give_back(self, block: FrameBlock) -> None:
        """Keep a block for another frame, unless a view of it still exists."""
        size = len(block.view)
        try:
            block.view.release()
        except BufferError:
            self._leak(block, size)
            return
        if getrefcount(block.buffer) > self._unseen_references:
            self._leak(block, size)
        elif size >= SCRATCH_BYTES and not size & (size - 1) and size <= POOLED_BYTES:
            if self.pooled + block.warm <= self._pool_bytes:
                self.pooled += block.warm
                block.view = memoryview(block.buffer)
                self._pool.setdefault(size, []).append(block)
            elif isinstance(block.buffer, mmap.mmap):
                block.buffer.close()
        elif isinstance(block.buffer, mmap.mmap):
            block.buffer.close()

    def _take(self, need: int) -> FrameBlock:
        size = SCRATCH_BYTES
        while size < need:
            size *= 2
        free = self._pool.get(size)
        if free:
            block = free.pop()
            self.pooled -= block.warm
            return block
        return FrameBlock(self, map_memory(size))

    def _leak(self, block: FrameBlock, size: int) -> None:
        size = min(size, block.warm)

        def gone(reference: weakref.ref[Any]) -> None:
            del self._leaks[id(reference)]
            self.leaked -= size

        reference = weakref.ref(block.buffer, gone)
        self.leaked += size
        self._leaks[id(reference)] = reference

    # -- accounts

    @property
    def used(self) -> int:
        """Bytes committed for frames that are incomplete, waiting or still referenced by views."""
        return sum(tier.used for tier in self.tiers) + self.leaked

    def may_be_kept(self) -> bool:
        """Whether views may outlive their requests: some room stays free, so that clients with short requests go on."""
        return self.leaked < self.limit_bytes * 15 // 16

    @property
    def waiting(self) -> bool:
        """Whether some connection has paused reading for lack of memory."""
        return any(tier.paused for tier in self.tiers)

    def charge(self, tier: Tier, count: int) -> None:
        """Add to the memory that a tier uses."""
        tier.used += count
        self.short = self.short or self._room(tier) < SCRATCH_BYTES

    def may_fill(self, block: FrameBlock, end: int, need: int) -> int:
        """Return the position up to which a home may be filled now; at `end`, mark it as paused."""
        tier = block.tier
        assert tier is not None
        allowed = max(block.charged, end) + max(0, self._room(tier))
        if allowed >= need or (not self._at_work(tier) and block is self._oldest(tier)):
            return need
        if allowed - end >= SMALLEST_READ_BYTES:
            return allowed
        if not block.paused:
            block.paused = True
            tier.paused += 1
        return end

    def completed(self, block: FrameBlock) -> None:
        """A frame is complete: it keeps its memory, but leaves the list of incomplete frames."""
        tier = block.tier
        if tier is None or not block.sequence:
            return
        tier.window_ms = self._stall_ms
        self._leave(tier, block)
        self._resume()

    def release(self, block: FrameBlock) -> None:
        """A home is no longer needed."""
        tier = block.tier
        assert tier is not None
        if block.sequence:
            if block.end >= block.need:
                tier.window_ms = self._stall_ms
            self._leave(tier, block)
        tier.used -= block.charged
        block.charged = 0
        block.tier = None
        block.owner = None
        if self.short:
            self.short = any(self._room(each) < SCRATCH_BYTES for each in self.tiers)
        self._resume()

    def _tier_of(self, need: int) -> Tier:
        for tier in (self.tiny, self.small):
            if need <= tier.max_frame_bytes:
                return tier
        return self.large

    def _enroll(
        self, block: FrameBlock, need: int, end: int, owner: Any, old: FrameBlock | None = None
    ) -> None:
        block.tier = tier = self._tier_of(need)
        block.owner = owner
        block.need = need
        block.end = end
        block.paused = False
        block.mark_ms = -1
        if old is None:
            self._sequence += 1
            block.sequence = self._sequence
            block.deadline_ms = (
                self._now_ms + self._frame_timeout_ms + need * 1000 // self._min_bytes_per_second
            )
        else:  # it has grown, or its size is now known: it keeps its age
            block.sequence = old.sequence
            block.deadline_ms = old.deadline_ms
            if old.tier is not None:
                self._leave(old.tier, old, keep=old.tier is tier)
        tier.incomplete[block.sequence] = block
        block.charged = block.warm
        self.charge(tier, block.warm)

    def _leave(self, tier: Tier, block: FrameBlock, keep: bool = False) -> None:
        if not keep:
            del tier.incomplete[block.sequence]
        block.sequence = 0
        if block.paused:
            block.paused = False
            tier.paused -= 1

    def _room(self, tier: Tier) -> int:
        above = self.leaked
        for each in self.tiers:
            if each is tier:
                return tier.share - above - tier.used
            above = min(above + each.used, each.share)
        raise LookupError(tier.name)

    def _at_work(self, tier: Tier) -> bool:
        """Whether requests in progress use all of a tier; their memory is released when they end."""
        return self.leaked > tier.share

    def _oldest(self, tier: Tier) -> FrameBlock | None:
        for block in tier.incomplete.values():
            if block.owner is None or not block.owner.blocked:
                return block
        return None

    def _resume(self) -> None:
        for tier in self.tiers:
            if tier.paused:
                oldest = self._oldest(tier)
                if oldest is not None and oldest.paused:
                    self._wake(tier, oldest)
                if tier.paused and self._room(tier) >= RESUME_BYTES:
                    for block in tier.incomplete.values():
                        if block.paused:
                            self._wake(tier, block)

    def _wake(self, tier: Tier, block: FrameBlock) -> None:
        block.paused = False
        tier.paused -= 1
        if block.owner is not None:
            block.owner.room()

    # -- time

    def tick(self, now_ms: int) -> None:
        """Close the connections whose frames hold up others, or have taken too long."""
        self._now_ms = now_ms
        for tier in self.tiers:
            if tier.paused:
                self._judge(tier, now_ms)
        if now_ms - self._scanned_ms >= DEADLINE_SCAN_MS:
            self._scan(now_ms, now_ms - self._scanned_ms)
            self._scanned_ms = now_ms
        self._resume()

    def _judge(self, tier: Tier, now_ms: int) -> None:
        oldest = self._oldest(tier)
        if oldest is None:
            return
        if self._at_work(tier):  # it may not progress
            oldest.mark_ms = -1
            return
        if oldest.paused:  # it has become the oldest since it was paused
            self._wake(tier, oldest)
        progress = oldest.end - oldest.mark_bytes
        if oldest.mark_ms < 0:
            oldest.mark_ms, oldest.mark_bytes = now_ms, oldest.end
        elif now_ms - oldest.mark_ms >= tier.window_ms:
            if progress < max(1, oldest.need // PROGRESS_PARTS):
                tier.window_ms = max(self._min_stall_ms, tier.window_ms // 2)
                self._evict(
                    oldest,
                    f"only {progress} bytes arrived in {now_ms - oldest.mark_ms} ms while "
                    "others waited for memory (queued.max.request.bytes)",
                )
            else:
                oldest.mark_ms, oldest.mark_bytes = now_ms, oldest.end

    def _scan(self, now_ms: int, since_ms: int) -> None:
        late: list[FrameBlock] = []
        for tier in self.tiers:
            for block in tier.incomplete.values():
                if block.paused or (block.owner is not None and block.owner.blocked):
                    block.deadline_ms += since_ms
                elif block.deadline_ms <= now_ms:
                    late.append(block)
        for block in late:
            self._evict(block, "it took too long")

    def _evict(self, block: FrameBlock, why: str) -> None:
        if block.owner is not None:
            block.owner.evict(f"request of {block.need} bytes is incomplete at {block.end}: {why}")
