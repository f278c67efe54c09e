"""A disk in memory: the view of programs (the page cache), the content of the device, and faults.

A file has three parts: `data`, which reads return; `durable`, which is certainly on the device; and
`pending`, the writes and truncations between the two. A directory is the same with names. `fsync` moves
pending to durable for that one file or directory only; a power cut keeps some of what is pending:

    files         nothing, everything, the first writes with the last one torn at any byte, any
                  pages out of order, or the new size with zeros where data did not arrive
    directories   the first changes of names, in order, as journaling file systems keep them;
                  each directory for itself

As on Linux, a failed fsync does not change what reads return, but forgets that it is not on the device:
the next fsync succeeds and does not write it. When the process ends, such pages leave the cache.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator
from random import Random
from typing import ClassVar

from server.log.file_layer import Buffer, FileLayer

PAGE_SIZES = (1, 16, 64, 512, 4096)

Op = tuple[int, bytes | None]
"""(position, bytes written), or (size, None) for a cut."""


class Stopped(BaseException):
    """The process has ended: it was killed, or the power failed."""


class Inode:
    """One file."""

    __slots__ = ("data", "dropped", "durable", "modified_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        self.pending: list[Op] = []
        self.dropped = False
        """Pages are in the cache only, and no fsync will write them."""
        self.modified_ms = 0

    def write(self, position: int, data: bytes) -> None:
        apply(self.data, (position, data))
        self.pending.append((position, data))

    def cut(self, size: int) -> None:
        apply(self.data, (size, None))
        self.pending.append((size, None))

    def sync(self) -> None:
        """Move everything pending to the device."""
        if self.pending:
            device = bytearray(self.durable)
            for op in self.pending:
                apply(device, op)
            self.durable = bytes(device)
            self.pending.clear()

    def fail_to_sync(self, rng: Random) -> None:
        """Move some of it to the device, and forget the rest."""
        self.durable = self.settled(rng)
        self.pending.clear()
        self.dropped = self.durable != self.data

    def settled(self, rng: Random) -> bytes:
        """The content of the device after a power cut."""
        pending = self.pending
        if not pending:
            return self.durable
        how = rng.randrange(6)
        if how == 0:
            return self.durable
        device = bytearray(self.durable)
        if how == 1:
            kept = pending
        elif how in (2, 3):
            kept = pending[: rng.randrange(len(pending))]
            torn = pending[len(kept)]
            if torn[1] is not None:
                kept = [*kept, (torn[0], torn[1][: rng.randrange(len(torn[1]) + 1)])]
        else:
            kept = list(some_pages(pending, rng))
        for op in kept:
            apply(device, op)
        if how == 5 and len(self.data) > len(device):
            apply(device, (len(self.data), None))
        return bytes(device)

    def come_back(self, content: bytes) -> None:
        """Take this content, on the device and for readers."""
        self.data = bytearray(content)
        self.durable = content
        self.pending.clear()
        self.dropped = False


def apply(data: bytearray, op: Op) -> None:
    """Apply one write or truncation."""
    position, written = op
    if len(data) < position:
        data += bytes(position - len(data))
    if written is None:
        del data[position:]
    else:
        data[position : position + len(written)] = written


def some_pages(pending: list[Op], rng: Random) -> Iterator[Op]:
    """Some of the writes, page by page, each kept or lost independently."""
    size = rng.choice(PAGE_SIZES)
    likely = rng.random()
    for position, data in pending:
        if data is None:
            if rng.random() < likely:
                yield position, None
            continue
        at = 0
        while at < len(data):
            end = min(len(data), at + size - (position + at) % size)
            if rng.random() < likely:
                yield position + at, data[at:end]
            at = end


class Folder:
    """One directory."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.pending: list[tuple[str | None, str | None, Node | None]] = []
        """(removed name, added name, the node that it names)"""

    def change(self, old: str | None, new: str | None, node: Node | None) -> None:
        rename(self.entries, old, new, node)
        self.pending.append((old, new, node))

    def sync(self, count: int | None = None) -> None:
        """Move the first `count` changes to the device, or all if None."""
        for each in self.pending[:count]:
            rename(self.durable, *each)
        del self.pending[:count]

    def settle(self, rng: Random) -> None:
        self.sync(rng.choice((0, len(self.pending), rng.randint(0, len(self.pending)))))
        self.pending.clear()
        self.entries = dict(self.durable)


Node = Inode | Folder


def rename(entries: dict[str, Node], old: str | None, new: str | None, node: Node | None) -> None:
    if old is not None:
        entries.pop(old, None)
    if new is not None:
        assert node is not None
        entries[new] = node


class Disk:
    """The state that survives the process. Top-level directories are mount points and always exist."""

    def __init__(self, mounts: tuple[str, ...]) -> None:
        self.root = Folder()
        for mount in mounts:
            self.root.entries[mount.strip("/")] = Folder()

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for name in path.split("/"):
            if name:
                if not isinstance(node, Folder):
                    return None
                node = node.entries.get(name)
        return node

    def parent(self, path: str) -> tuple[Folder, str]:
        """The directory that contains a path, and the name in it. Errors: FileNotFoundError."""
        above, _, name = path.rpartition("/")
        folder = self.find(above)
        if not isinstance(folder, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return folder, name

    def lose_power(
        self, rng: Random, settle: Callable[[Inode, Random], bytes] | None = None
    ) -> None:
        """Keep only data that has reached the device; `settle` decides that for each file."""
        for folder in self.root.entries.values():
            assert isinstance(folder, Folder)
            _settle(folder, rng, settle or Inode.settled)

    def drop_pages(self) -> None:
        """End the process; pages that a failed fsync left in the cache are dropped."""
        for _, node in self.files():
            if node.dropped:
                device = bytearray(node.durable)
                node.data = device
                for op in node.pending:
                    apply(device, op)
                node.dropped = False

    def files(self) -> Iterator[tuple[str, Inode]]:
        """All files that have a name, sorted by path."""
        return _files(self.root, "")

    def copy(self) -> Disk:
        """A copy of the disk, with everything on the device."""
        twin = Disk(())
        twin.root = _copy(self.root)
        return twin


def _settle(folder: Folder, rng: Random, settle: Callable[[Inode, Random], bytes]) -> None:
    folder.settle(rng)
    for _, node in sorted(folder.entries.items()):
        if isinstance(node, Folder):
            _settle(node, rng, settle)
        else:
            node.come_back(settle(node, rng))


def _files(folder: Folder, path: str) -> Iterator[tuple[str, Inode]]:
    for name, node in sorted(folder.entries.items()):
        if isinstance(node, Folder):
            yield from _files(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node


def _copy(folder: Folder) -> Folder:
    twin = Folder()
    for name, node in folder.entries.items():
        if isinstance(node, Folder):
            twin.entries[name] = _copy(node)
        else:
            twin.entries[name] = inode = Inode()
            inode.come_back(bytes(node.data))
            inode.modified_ms = node.modified_ms
    twin.durable = dict(twin.entries)
    return twin


class Fault:
    """A fault and the call at which it occurs.

    Shape: kind is `stop` (the process ends in the middle of the call), `short` (a write stops early and reports it),
    `EIO`, `ENOSPC`, `fsync` or `read`. It occurs at the at-th call of a suitable kind, and if sticky also at each later
    one, only below the path prefix.
    """

    CALLS: ClassVar[dict[str, tuple[str, ...]]] = {
        "stop": ("write", "cut", "create", "names", "fsync"),
        "short": ("write",),
        "EIO": ("write", "cut", "create", "names"),
        "ENOSPC": ("write", "create"),
        "fsync": ("fsync",),
        "read": ("read",),
    }

    def __init__(self, kind: str, at: int, *, prefix: str = "/", sticky: bool = True) -> None:
        self.kind = kind
        self.at = at
        self.prefix = prefix
        self.sticky = sticky
        self.calls = 0
        self.struck = False
        self._counted = self.CALLS[kind]

    def strikes(self, call: str, path: str) -> bool:
        """Count a call; True if it fails."""
        if call not in self._counted or not path.startswith(self.prefix):
            return False
        self.calls += 1
        if self.calls == self.at or (self.struck and self.sticky):
            self.struck = True
            return True
        return False

    def __repr__(self) -> str:
        return f"Fault({self.kind!r}, {self.at}, prefix={self.prefix!r}, sticky={self.sticky})"


@functools.cache
def _null() -> int:
    """The descriptor of which all others are duplicates."""
    return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)


class DiskFiles(FileLayer):
    """A process's view of a disk; its descriptors are real ones, and `close` closes them."""

    def __init__(self, disk: Disk, rng: Random | None = None, fault: Fault | None = None) -> None:
        super().__init__(64)
        self.disk = disk
        self.rng = rng or Random(0)
        self.fault = fault
        self.stopped = False
        self.now_ms = 0
        """The time of the file system's clock."""
        self._nodes: dict[int, tuple[Node, str]] = {}

    def close(self) -> None:
        """Close all files, as at the end of a process, since cyclic references may keep its logs alive."""
        while self._in_use:
            self._in_use.pop().close()

    def _step(self, call: str, path: str) -> str | None:
        # Count a call; returns the kind of fault if the call itself has to simulate it.
        if self.stopped:
            raise Stopped
        fault = self.fault
        if fault is None or not fault.strikes(call, path):
            return None
        kind = fault.kind
        if kind == "stop":
            self.stopped = True
            if call != "write" and self.rng.random() < 0.5:
                raise Stopped
            return kind
        if call == "write" and (kind == "short" or (kind == "ENOSPC" and fault.calls == fault.at)):
            return kind  # the part that still has room is written
        number = errno.ENOSPC if kind == "ENOSPC" else errno.EIO
        if kind != "fsync":
            raise OSError(number, os.strerror(number), path)
        return kind

    def _end(self, kind: str | None) -> None:
        if kind == "stop":
            raise Stopped

    # -- files by descriptor -----------------------------------------------------------------------

    def open_fd(self, path: str, flags: int) -> int:
        if self.stopped:
            raise Stopped
        node = self.disk.find(path)
        kind = None
        if node is None:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            folder, name = self.disk.parent(path)
            kind = self._step("create", path)
            node = Inode()
            node.modified_ms = self.now_ms
            folder.change(None, name, node)
        if flags & os.O_TRUNC and isinstance(node, Inode) and node.data:
            kind = self._step("cut", path)
            node.cut(0)
        self._end(kind)
        fd = os.dup(_null())
        self._nodes[fd] = node, path
        return fd

    def _inode(self, fd: int) -> tuple[Inode, str]:
        node, path = self._nodes[fd]
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node, path

    def pread(self, fd: int, size: int, position: int) -> bytes:  # type: ignore[override]
        node, path = self._inode(fd)
        self._step("read", path)
        return bytes(node.data[position : position + size])

    def pwrite(self, fd: int, data: Buffer, position: int) -> int:  # type: ignore[override]
        node, path = self._inode(fd)
        kind = self._step("write", path)
        content = bytes(data)
        if kind is not None:
            content = content[: self.rng.randint(1 if kind == "short" else 0, len(content))]
        if content:
            node.write(position, content)
            node.modified_ms = self.now_ms
        self._end(kind)
        if kind == "ENOSPC" and not content:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return len(content)

    def ftruncate(self, fd: int, size: int) -> None:  # type: ignore[override]
        node, path = self._inode(fd)
        kind = self._step("cut", path)
        node.cut(size)
        self._end(kind)

    def fsync(self, fd: int) -> None:
        node, path = self._nodes[fd]
        kind = self._step("fsync", path)
        if kind == "stop":
            raise Stopped
        if kind is not None:
            if isinstance(node, Inode):
                node.fail_to_sync(self.rng)
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        node.sync()

    # -- names -------------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        folder, old = self.disk.parent(source)
        if old not in folder.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        there, new = self.disk.parent(target)
        assert there is folder, "from one directory into another"
        kind = self._step("names", source)
        folder.change(old, new, folder.entries[old])
        self._end(kind)

    def unlink(self, path: str) -> None:
        try:
            folder, name = self.disk.parent(path)
        except FileNotFoundError:
            return
        if name in folder.entries:
            kind = self._step("names", path)
            folder.change(name, None, None)
            self._end(kind)

    def list_directory(self, path: str) -> dict[str, int]:
        return {
            name: len(node.data)
            for name, node in self._folder(path).entries.items()
            if isinstance(node, Inode)
        }

    def list_subdirectories(self, path: str) -> list[str]:
        return [n for n, node in self._folder(path).entries.items() if isinstance(node, Folder)]

    def sync_directory(self, path: str) -> None:
        fd = self.open_fd(path, os.O_RDONLY)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def _folder(self, path: str) -> Folder:
        self._step("read", path)
        node = self.disk.find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def make_directory(self, path: str) -> None:
        if self.disk.find(path) is None:
            folder, name = self.disk.parent(path)
            kind = self._step("create", path)
            folder.change(None, name, Folder())
            self._end(kind)

    def remove_tree(self, path: str) -> None:
        node = self.disk.find(path)
        if isinstance(node, Folder):
            for name in list(node.entries):
                self.unlink(f"{path}/{name}")
            self.unlink(path)

    def file_size(self, path: str) -> int | None:
        if self.stopped:
            raise Stopped
        node = self.disk.find(path)
        return len(node.data) if isinstance(node, Inode) else None

    def modified_ms(self, path: str) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._step("names", path)
        self._file(path).modified_ms = modified_ms

    def _file(self, path: str) -> Inode:
        node = self.disk.find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return node

    def device_content(self, path: str) -> tuple[bool, Inode]:
        """Whether a file and all names in its path are on the device."""
        node: Node = self.disk.root
        named = True
        for depth, name in enumerate(path.strip("/").split("/")):
            assert isinstance(node, Folder)
            child = node.entries[name]
            named = named and (depth == 0 or node.durable.get(name) is child)
            node = child
        assert isinstance(node, Inode)
        return named, node

    def lock(self, path: str) -> int | None:
        os.close(self.open_fd(path, os.O_RDWR | os.O_CREAT))
        return -1  # there is only one broker at a time

    def unlock(self, fd: int) -> None: ...
