"""The length-prefixed stream: where received bytes go, and the frames found in them.

    frame := size (INT32, big-endian: bytes after it) · payload (request header and body)

A frame is parsed where it was received. Between two events, a connection keeps memory only for an
incomplete frame, or for requests that have to wait. All connections take turns in using the block
into which bytes are received (`scratch`). Bytes that must be kept are moved to a separate block
(`home`), or stay where they are if moving them would cost more than keeping the block.
"""

from __future__ import annotations

from typing import Protocol

from kwire.errors import BadLength

SIZE_BYTES = 4
#: The `path` of an error in the announced size of a frame.
FRAME_SIZE = "frame size"


class Block(Protocol):
    """A piece of memory for received bytes."""

    #: The whole block, writable.
    view: memoryview

    def limit(self, end: int, need: int) -> int:
        """Return the position up to which the block may be filled now; `end` if reading has to wait."""
        ...

    def filled(self, end: int) -> None:
        """Account for bytes up to `end`."""
        ...

    def complete(self) -> None:
        """Note that the frame in this home has arrived completely."""
        ...

    def close(self) -> None:
        """Release the block; existing views of it stay valid, and its memory is not reused until they are gone."""
        ...


class SharedBlock(Block, Protocol):
    """The block that all connections use in turn, while it belongs to none of them."""

    #: The number of bytes from its beginning that have been written before.
    warm: int

    def warmed(self, end: int) -> None:
        """Account for bytes up to `end`, which were received directly into the block."""
        ...


class ReceiveMemory(Protocol):
    """The source of blocks."""

    def shared(self, expected_bytes: int) -> SharedBlock | None:
        """Return the block that `scratch` would return next, without taking it; None if none is available.

        Shape: for bytes that the caller processes before it returns; otherwise it calls `scratch`, which returns this
        block.
        """
        ...

    def scratch(self, expected_bytes: int) -> Block:
        """Return a block to receive into while nothing is known about the next bytes."""
        ...

    def settle(self, block: Block, need: int, end: int, owner: object) -> bool:
        """Try to make a scratch block the home of the frame of `need` bytes at its beginning."""
        ...

    def home(
        self,
        need: int,
        held: memoryview,
        owner: object,
        complete: bool,
        grown_from: Block | None = None,
    ) -> Block:
        """Return a block that begins with a copy of `held` and has room for `need` bytes in total.

        Shape: it may be shorter than `need`; when it is full, another call with it as `grown_from` returns a longer
        one. `complete`: it holds whole waiting requests, not part of one.
        """
        ...


class PlainBlock:
    """A bytearray."""

    __slots__ = ("view",)

    def __init__(self, size: int) -> None:
        self.view = memoryview(bytearray(size))

    def limit(self, end: int, need: int) -> int:
        return min(need, len(self.view)) if end else len(self.view)

    def filled(self, end: int) -> None:
        return

    def complete(self) -> None:
        return

    def close(self) -> None:
        return


class PlainMemory:
    """Memory for one stream, whose frames stay valid for as long as they are referenced.

    A frame that does not arrive in one piece gets a home of its announced size, so that its bytes are not moved again.
    The system commits the pages of a large home only as they are written.
    """

    def __init__(self, scratch_bytes: int = 65536) -> None:
        self._scratch_bytes = scratch_bytes
        self._scratch: PlainBlock | None = None

    def shared(self, expected_bytes: int) -> None:
        return None

    def scratch(self, expected_bytes: int) -> PlainBlock:
        if self._scratch is None:
            self._scratch = PlainBlock(self._scratch_bytes)
        return self._scratch

    def settle(self, block: Block, need: int, end: int, owner: object) -> bool:
        return False

    def home(
        self,
        need: int,
        held: memoryview,
        owner: object,
        complete: bool,
        grown_from: Block | None = None,
    ) -> PlainBlock:
        block = PlainBlock(max(len(held), need))
        block.view[: len(held)] = held
        return block


class FrameReader:
    """Cuts a stream of bytes into frames without copying those that arrive in one piece.

    Use: `get_buffer()`, receive into it, release it, `advance(n)`, then `next_frame()` until it returns
    None or the caller has enough, then `rest()`. Frames are views whose memory may be reused after
    `rest()`: release them first.
    """

    __slots__ = (
        "_block",
        "_end",
        "_expected",
        "_home",
        "_memory",
        "_need",
        "_owner",
        "_start",
        "is_empty",
        "max_frame_bytes",
    )

    def __init__(self, memory: ReceiveMemory, max_frame_bytes: int, owner: object = None) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._memory = memory
        self._owner = owner
        self._block: Block | None = None
        self._start = 0  # of the next frame, in the block
        self._end = 0  # of the received bytes
        self._need = 0  # position at which the frame at _start ends, 0 before its size is known
        self._home = False  # the block belongs to this stream, with its frame at position 0
        self._expected = 0  # size of the last frame too large for the shared block
        #: Whether `next_frame` has returned all bytes that were received.
        self.is_empty = True

    def get_buffer(self) -> memoryview | None:
        """Return where the next bytes go, or None while no memory is available."""
        block = self._block
        if block is None:
            block = self._block = self._memory.scratch(self._expected)
            self._start = self._end = self._need = 0
            return block.view[: block.limit(0, self._expected)]
        end = self._end
        if end == len(block.view):
            block = self._move(block, self._need - self._start, False, block)
            end = self._end
        limit = block.limit(end, self._need) if self._need else SIZE_BYTES
        return block.view[end:limit] if limit > end else None

    def shared_block(self) -> SharedBlock | None:
        """Return a block for probably whole frames; None while a partial frame is held or frames are large.

        Use: receive into its view, and call `take_over` with the remaining bytes, if any.
        """
        return None if self._block is not None else self._memory.shared(self._expected)

    def take_over(self, block: SharedBlock, start: int, end: int) -> None:
        """Continue with the bytes from start to end in the shared block, as if they had been received into
        `get_buffer()`.
        """
        own = self._memory.scratch(0)
        assert own is block
        self._block = block
        self._start, self._end, self._need = start, end, 0
        block.filled(end)

    def advance(self, received_bytes: int) -> None:
        """Record how many bytes were received into the buffer."""
        self._end = end = self._end + received_bytes
        block = self._block
        if block is None:
            raise RuntimeError("advance() without get_buffer()")
        block.filled(end)

    def feed(self, data: bytes | bytearray | memoryview) -> int:
        """Copy as much as fits into the buffer and return the number of bytes; for programs and tests."""
        buffer = self.get_buffer()
        if buffer is None:
            return 0
        count = min(len(buffer), len(data))
        buffer[:count] = memoryview(data)[:count]
        buffer.release()
        self.advance(count)
        return count

    def next_frame(self) -> memoryview | None:
        """Return the payload of the next complete frame, or None when more bytes are needed.

        Errors: BadLength when the announced size is negative or above the limit.
        """
        start = self._start
        end = self._end
        if end - start < SIZE_BYTES:
            self._need = 0
            return None
        block = self._block
        if block is None:
            return None
        need = self._peek()
        if need > end:
            return None
        self._start = need
        self.is_empty = need == end
        self._need = 0
        self._expected = need - start
        return block.view[start + SIZE_BYTES : need]

    def next_lasting_frame(self) -> memoryview | None:
        """Return the next frame in memory that is not reused; for a stream on PlainMemory.

        Shape: a view of its home if it has one, else of a copy. Errors: as `next_frame`.
        """
        at_home = self._home
        frame = self.next_frame()
        return frame if frame is None or at_home else memoryview(bytes(frame))

    def rest(self) -> None:
        """Keep the bytes that are needed until more arrive, and release the rest of the memory."""
        block = self._block
        if block is None:
            return
        start, end = self._start, self._end
        if start == end:
            block.close()
            self._block = None
            self._home = False
            return
        held = end - start
        need = self._peek() - start if held >= SIZE_BYTES else 0
        complete = 0 < need <= held
        if self._home and (complete or start == 0):
            if complete:
                block.complete()
            return
        if (
            not complete
            and need
            and start == 0
            and self._memory.settle(block, need, end, self._owner)
        ):
            self._home = True
            return
        self._move(block, held if complete else need or SIZE_BYTES, complete)

    def close(self) -> None:
        """Release all memory, and forget the owner; no more bytes can be received."""
        self._owner = None
        if self._block is not None:
            self._block.close()
            self._block = None
            self._home = False
        self._start = self._end = self._need = 0

    def has_frame(self) -> bool:
        """Whether `next_frame` would return a frame, or raise an error."""
        held = self._end - self._start
        if held < SIZE_BYTES:
            return False
        try:
            return self._peek() <= self._end
        except BadLength:
            return True

    @property
    def held_bytes(self) -> int:
        """Bytes received but not yet returned as frames."""
        return self._end - self._start

    @property
    def announced_bytes(self) -> int:
        """Size of the incomplete frame with its prefix, 0 when not known."""
        return self._need - self._start if self._need else 0

    @property
    def beginning(self) -> bytes:
        """The first held bytes, for a log line that shows them."""
        if self._block is None:
            return b""
        return bytes(self._block.view[self._start : min(self._end, self._start + 16)])

    def _peek(self) -> int:
        """Return where the frame at the start ends, or 0 until its size has arrived."""
        if self._need:
            return self._need
        start, block = self._start, self._block
        if block is None or self._end - start < SIZE_BYTES:
            return 0
        size = int.from_bytes(block.view[start : start + SIZE_BYTES], "big", signed=True)
        if not 0 <= size <= self.max_frame_bytes:
            raise BadLength(f"{size} is not between 0 and {self.max_frame_bytes}", path=FRAME_SIZE)
        self._need = need = start + SIZE_BYTES + size
        return need

    def _move(
        self, block: Block, need: int, complete: bool, grown_from: Block | None = None
    ) -> Block:
        held = block.view[self._start : self._end]
        home = self._memory.home(need, held, self._owner, complete, grown_from)
        self._end = len(held)
        held.release()
        block.close()
        self._need = self._need - self._start if self._need else 0
        self._start = 0
        self._block = home
        self._home = True
        return home
