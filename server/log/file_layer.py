"""The only file I/O of the log: descriptors opened on use, positioned reads and writes, fsync.

10,000 partitions have 30,000 files and the hard limit of descriptors may be 20,000. So a `LogFile`
is a path that is open only while it is used; `FileLayer` keeps a bounded number of them open and
closes one that was not used recently (second chance). A descriptor stays open as long as its
`OpenFile` is referenced: a `FileSlice` on its way to a socket can still read a file that was
evicted, renamed or deleted meanwhile.
"""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable

from ..descriptors import budget

logger = logging.getLogger(__name__)

Buffer = bytes | bytearray | memoryview

READ_CHUNK_BYTES = 8192

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
"""Errors that say nothing of the disk."""

# A record lock does not exclude its own process, and is lost when the process closes *any* descriptor of the file. Lock
# holders are therefore remembered here, by descriptor.
_LOCKED: dict[int, str] = {}


class OpenFile:
    """An open descriptor; it is closed when the last reference to this object goes."""

    __slots__ = ("fd", "recent")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.recent = True

    def __del__(self) -> None:
        os.close(self.fd)


class LogFile:
    """One file of a log directory, opened on first use and perhaps closed between uses."""

    __slots__ = ("_layer", "opened", "path")

    def __init__(self, layer: FileLayer, path: str) -> None:
        self._layer = layer
        self.opened: OpenFile | None = None
        self.path = path

    def open(self) -> OpenFile:
        """Return the descriptor; it stays valid as long as the caller holds the object."""
        opened = self.opened
        if opened is None:
            opened = self._layer.open_for(self)
        opened.recent = True
        return opened

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of data at a byte position, in one system call unless the kernel stops short.

        Errors: OSError; bytes beyond what the caller counts as the file's size may then be garbage.
        """
        opened = self.opened
        if opened is None:
            opened = self._layer.open_for(self)
        opened.recent = True
        try:
            written = self._layer.pwrite(opened.fd, data, position)
            if written != len(data):
                view = memoryview(data)
                while written < len(view):
                    written += self._layer.pwrite(opened.fd, view[written:], position + written)
        except OSError as e:
            e.filename = e.filename or self.path  # the system call knows only the descriptor
            raise

    def read_at(self, size: int, position: int) -> bytes:
        """Read up to size bytes at a byte position; fewer only at the end of the file."""
        opened = self.opened
        if opened is None:
            opened = self._layer.open_for(self)
        opened.recent = True
        data = self._layer.pread(opened.fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size:
            data = self._layer.pread(self.open().fd, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def size(self) -> int:
        """Bytes in the file, as the file system has it."""
        return os.fstat(self.open().fd).st_size

    def sync(self) -> None:
        """Force data and size to the device."""
        self._layer.fsync(self.open().fd)

    def truncate(self, size: int) -> None:
        """Cut the file to size bytes."""
        self._layer.ftruncate(self.open().fd, size)

    def rename(self, path: str) -> None:
        """Rename the file; an open descriptor stays valid."""
        self._layer.rename(self.path, path)
        self.path = path

    def close(self) -> None:
        """Close the descriptor; the next use opens the file again."""
        self.opened = None

    def evict(self) -> bool:
        """Close unless used since the last call; return whether the descriptor was given up."""
        opened = self.opened
        if opened is None:
            return True
        if opened.recent:
            opened.recent = False
            return False
        self.opened = None
        return True


class FileSlice:
    """Contiguous bytes of a stored file; holds the file open until closed or collected."""

    __slots__ = ("_file", "_layer", "position", "size")

    def __init__(self, layer: FileLayer, opened: OpenFile, position: int, size: int) -> None:
        self._layer = layer
        self._file: OpenFile | None = opened
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"

    def fileno(self) -> int:
        """The descriptor to send from; its file offset has no meaning. Errors: ValueError."""
        if self._file is None:
            raise ValueError("this slice is closed")
        return self._file.fd

    def read(self) -> bytes:
        """All bytes of the slice. Errors: OSError if the file was cut below the slice's end."""
        fd = self.fileno()
        parts: list[bytes] = []
        got = 0
        while got < self.size:
            data = self._layer.pread(fd, self.size - got, self.position + got)
            if not data:
                raise OSError(f"file ends {self.size - got} bytes before the slice does")
            parts.append(data)
            got += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def again(self) -> FileSlice:
        """A second reference to the same bytes, to be closed separately.

        Errors: ValueError.
        """
        if self._file is None:
            raise ValueError("this slice is closed")
        return FileSlice(self._layer, self._file, self.position, self.size)

    def read_at(self, size: int, position: int) -> bytes:
        """Up to the given number of bytes of the slice, at a position in it.

        Errors: OSError, ValueError.
        """
        size = min(size, self.size - position)
        return self._layer.pread(self.fileno(), size, self.position + position)

    def narrow(self, start: int, size: int) -> None:
        """Keep only a part of the slice."""
        self.position += start
        self.size = size

    def head(self, size: int) -> bytes:
        """The first bytes of the slice."""
        return self._layer.pread(self.fileno(), min(size, self.size), self.position)

    def close(self) -> None:
        """Release the file; safe to call twice."""
        self._file = None


def leads_to(entry: os.DirEntry[str], is_kind: Callable[[], bool]) -> bool:
    """Whether an entry is of a kind; a link that leads nowhere (to itself, for example) is skipped."""
    try:
        return is_kind()
    except OSError as error:
        if not entry.is_symlink():
            raise
        logger.warning(
            "%s is a link that cannot be followed, and is skipped: %s", entry.path, error
        )
        return False


class FileLayer:
    """The operating system's files. Tests and the simulation subclass it and override calls.

    Errors: every method raises OSError as the system call does.
    """

    pread: Callable[[int, int, int], bytes] = staticmethod(os.pread)
    pwrite: Callable[[int, Buffer, int], int] = staticmethod(os.pwrite)
    ftruncate: Callable[[int, int], None] = staticmethod(os.ftruncate)

    def __init__(self, max_open_files: int | None = None) -> None:
        self.max_open_files = max_open_files or budget().files
        self._in_use: deque[LogFile] = deque()

    def __reduce__(self) -> tuple[type[FileLayer], tuple[()]]:
        # Another process has its own files.
        return FileLayer, ()

    # -- descriptors -----------------------------------------------------------------------------

    def open_for(self, file: LogFile) -> OpenFile:
        """Open (and create if missing) the file, evicting another one if too many are open."""
        in_use = self._in_use
        tries = len(in_use)
        while len(in_use) >= self.max_open_files and tries > 0:
            tries -= 1
            candidate = in_use.popleft()
            if not candidate.evict():
                in_use.append(candidate)
        if len(in_use) >= self.max_open_files:  # all of them were used recently
            in_use.popleft().close()
        opened = OpenFile(self.open_path(file.path, os.O_RDWR | os.O_CREAT))
        file.opened = opened
        in_use.append(file)
        return opened

    def open_read_only(self, path: str) -> LogFile:
        """A file that is never created or written, open until it is closed. Errors: OSError."""
        file = LogFile(self, path)
        file.opened = OpenFile(self.open_path(path, os.O_RDONLY))
        return file

    def open_path(self, path: str, flags: int) -> int:
        """Open a path; if there are no descriptors left, after giving half of the logs' back."""
        try:
            return self.open_fd(path, flags)
        except OSError as e:
            if e.errno not in OUT_OF_DESCRIPTORS:
                raise
        # Of a copy: threads open files, too, while the loop adds others.
        still_open = [each for each in list(self._in_use) if each.opened is not None]
        for each in still_open[: (len(still_open) + 1) // 2]:
            each.close()
        return self.open_fd(path, flags)

    def open_fd(self, path: str, flags: int) -> int:
        """Open a path, close-on-exec, mode 0644; a pipe in place of a file is not waited for."""
        return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)

    def fsync(self, fd: int) -> None:
        """Force a file to the device."""
        os.fsync(fd)

    def sync_path(self, path: str) -> None:
        """Force a closed file to the device; do nothing if it no longer exists."""
        try:
            fd = self.open_path(path, os.O_RDWR)
        except FileNotFoundError:
            return
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def slice(self, file: LogFile, position: int, size: int) -> FileSlice:
        """A slice of a file that stays readable even if the file is renamed or deleted."""
        return FileSlice(self, file.open(), position, size)

    # -- whole files -----------------------------------------------------------------------------

    def read_file(self, path: str) -> bytes:
        """The whole content of a (small) file. Errors: FileNotFoundError."""
        fd = self.open_path(path, os.O_RDONLY)
        try:
            parts = []
            position = 0
            while data := self.pread(fd, 1 << 20, position):
                parts.append(data)
                position += len(data)
            return b"".join(parts)
        except OSError as error:
            error.filename = error.filename or path
            raise
        finally:
            os.close(fd)

    def write_file(self, path: str, data: Buffer, *, sync: bool = False) -> None:
        """Create or overwrite a file in place; not atomic."""
        fd = self.open_path(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.write_all(fd, data, 0)
            if sync:
                self.fsync(fd)
        finally:
            os.close(fd)

    def replace_file(self, path: str, data: Buffer, *, sync: bool = True) -> None:
        """Write `<path>.tmp`, and rename it over path.

        Shape: readers see the old content or the new one. With sync also after a power cut;
        without, only after a crash of the process.
        """
        temporary = path + ".tmp"
        self.write_file(temporary, data, sync=sync)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(os.path.dirname(path))

    def write_all(self, fd: int, data: Buffer, position: int) -> None:
        """pwrite until everything is written."""
        view = memoryview(data)
        written = 0
        while written < len(view):
            written += self.pwrite(fd, view[written:], position + written)

    # -- names -----------------------------------------------------------------------------------

    def rename(self, source: str, target: str) -> None:
        """Rename atomically, replacing the target."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Remove a file; a missing one is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def list_directory(self, path: str) -> dict[str, int]:
        """Names of the plain files in a directory and their sizes in bytes."""
        with os.scandir(path) as entries:
            return {e.name: e.stat().st_size for e in entries if leads_to(e, e.is_file)}

    def list_subdirectories(self, path: str) -> list[str]:
        """Names of the directories in a directory."""
        with os.scandir(path) as entries:
            return [entry.name for entry in entries if leads_to(entry, entry.is_dir)]

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; an existing one is no error."""
        os.makedirs(path, exist_ok=True)

    def remove_tree(self, path: str) -> None:
        """Remove a directory of files, one level deep; missing things are no error."""
        try:
            names = os.listdir(path)
        except FileNotFoundError:
            return
        for name in names:
            child = os.path.join(path, name)
            if os.path.isdir(child) and not os.path.islink(child):
                self.remove_tree(child)
            else:
                self.unlink(child)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass

    def sync_directory(self, path: str) -> None:
        """Force a directory's names to the device."""
        fd = self.open_path(path or ".", os.O_RDONLY)
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def file_size(self, path: str) -> int | None:
        """Bytes in a file, or None if there is none."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int:
        """When the file was last written, in ms since the epoch."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write, for a file that replaces an older one."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def lock(self, path: str) -> int | None:
        """Take an exclusive record lock on a file; return its descriptor, None if taken.

        Source: Java's FileLock is a POSIX record lock, so fcntl.lockf keeps Apache Kafka out too.
        """
        import fcntl

        known = os.path.realpath(path)
        if known in _LOCKED.values():
            return None
        fd = self.open_fd(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            return None
        _LOCKED[fd] = known
        return fd

    def is_locked(self, path: str) -> bool:
        """Whether a file exists and is locked by any process; it is not written.

        Errors: OSError.
        """
        import fcntl
        import struct

        if os.path.realpath(path) in _LOCKED.values():
            return True  # opening and closing the file here would end that lock
        try:
            fd = self.open_fd(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(fd, fcntl.F_GETLK, asked)
        finally:
            os.close(fd)
        kind: int = struct.unpack("hhqqi4x", answer)[0]
        return kind != fcntl.F_UNLCK

    def unlock(self, fd: int) -> None:
        """Release a lock taken with `lock`."""
        _LOCKED.pop(fd, None)
        os.close(fd)
