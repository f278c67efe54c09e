"""What a broker holds, taken elsewhere: a copy of its log directory, and of its cluster's metadata.

Shape: what is taken is what a clean stop at that moment would have left. Connections are no part of it, nor are faults and recordings.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kwire.server.coordination.node_file import (
    NodeChanges,
    NodeFile,
    StoredNodes,
    changes_of,
    tree_of,
)
from kwire.server.coordination.store import EMBEDDED_STORE
from kwire.server.coordination.tree import NodeTree
from kwire.server.log.log_directory import CLEAN_SHUTDOWN

if TYPE_CHECKING:
    from kwire.server.log.log_manager import LogManager

    from .loop import LoopClock, Time

#: Where snapshots with a plain name are kept, in the working directory.
SNAPSHOTS = ".kafka-snapshots"
#: The stem of a segment's files is its base offset.
SEGMENT_FILE = re.compile(r"(\d{20})\.(log|index|timeindex|txnindex)")
#: Files and directories that are about to go, or not yet complete, and what belongs to a running broker only.
LEFT_OUT = re.compile(
    r"\.lock|\.kafka_cleanshutdown|.*\.(deleted|cleaned|tmp)|.*\.[0-9a-f]{32}-(delete|stray|future)"
    rf"|{re.escape(EMBEDDED_STORE)}.*"
)


class State(NamedTuple):
    """What a broker starts with: the metadata of its cluster, and its time. Its records are in a log directory."""

    metadata: StoredNodes
    time: Time | None = None

    def tree(self) -> NodeTree:
        """The metadata as a tree of nodes."""
        return tree_of(self.metadata)


def take(logs: LogManager, tree: NodeTree, clock: LoopClock, target: Path) -> State:
    """Copy what a running broker holds, to an empty directory; in one turn of its loop.

    Shape: segments that are no longer written are the same files in both directories, where the file system can do this. Errors: OSError; ValueError if there
    are several log directories.
    """
    if len(logs.directories) > 1:
        raise ValueError("a broker with several log directories cannot be copied")
    logs.write_down(clock.now_ms())
    [directory] = logs.directories
    copy_logs(Path(directory.path), target, link=True)
    (target / CLEAN_SHUTDOWN).write_bytes(b'{"version":0,"brokerEpoch":-1}')
    return State(stored(tree), clock.time())


def stored(tree: NodeTree) -> StoredNodes:
    """The lasting part of a tree, as a file would have it."""
    nodes = changes_of(tree, tree.nodes, ()).upserts
    return StoredNodes((tree.zxid >> 32) + 1, nodes, [])


def copy_logs(source: Path, target: Path, *, link: bool) -> None:
    """Copy a log directory into another one, without what belongs to a running broker, and without metadata.

    Shape: with `link`, files of segments that are no longer written are linked. Errors: OSError.
    """
    for entry in entries(source):
        if entry.is_dir():
            (target / entry.name).mkdir()
            copy_log(entry.path, f"{target}/{entry.name}", link=link)
        elif entry.is_file():
            copy_file(entry.path, f"{target}/{entry.name}")


def copy_log(source: str, target: str, *, link: bool) -> None:
    """Copy the directory of one partition. Errors: OSError."""
    names = [entry.name for entry in entries(source) if entry.is_file()]
    active = max((name[:20] for name in names if SEGMENT_FILE.fullmatch(name)), default="")
    for name in names:
        path, copied = f"{source}/{name}", f"{target}/{name}"
        if link and name[:20] < active and SEGMENT_FILE.fullmatch(name):
            try:
                os.link(path, copied)
                continue
            except OSError:
                link = False  # another file system, or one without links
        copy_file(path, copied)


def entries(path: str | Path) -> Iterator[os.DirEntry[str]]:
    """The entries of a directory that have to be copied."""
    with os.scandir(path) as found:
        for entry in found:
            if not LEFT_OUT.fullmatch(entry.name):
                yield entry


def copy_file(source: str, target: str) -> None:
    """Copy a file's content; its holes stay holes. Errors: OSError."""
    read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            copy_content(read, write)
        finally:
            os.close(write)
    finally:
        os.close(read)


#: A smaller file is read and written at once.
SMALL = 1 << 16


def copy_content(read: int, write: int) -> None:
    """Copy what is in one descriptor's file to another's, which is empty.

    Shape: file systems that can share the blocks of two files do so. Indexes of Apache Kafka are files of 10 MB with hardly anything in them.
    """
    data = os.pread(read, SMALL, 0)
    if len(data) < SMALL:
        if data:
            os.pwrite(write, data, 0)
        return
    size = os.fstat(read).st_size
    os.ftruncate(write, size)
    position = 0
    while position < size:
        try:
            start = os.lseek(read, position, os.SEEK_DATA)
        except OSError:  # a hole up to the end
            return
        position = os.lseek(read, start, os.SEEK_HOLE)
        copy_range(read, write, start, position)


def copy_range(read: int, write: int, start: int, end: int) -> None:
    """Copy a range of bytes; by the file system if it can. Errors: OSError."""
    in_kernel = hasattr(os, "copy_file_range")
    while start < end:
        if in_kernel:
            try:
                copied = os.copy_file_range(read, write, end - start, start, start)
                if copied:
                    start += copied
                    continue
            except OSError:
                pass
            in_kernel = False
        data = os.pread(read, min(end - start, 1 << 20), start)
        if not data:
            return  # the file was truncated in the meantime
        start += os.pwrite(write, data, start)


# -- on disk


def snapshot_path(name: str | Path) -> Path:
    """Where a snapshot is kept. Shape: a plain name is one of the directory SNAPSHOTS, anything else is a path. Errors: ValueError."""
    if isinstance(name, str) and os.sep not in name:
        if not name or name in (os.curdir, os.pardir):
            raise ValueError(f"{name!r} is not the name of a snapshot")
        return Path(SNAPSHOTS, name)
    return Path(name)


def save(state: State, copied: Path, path: Path) -> None:
    """Make a snapshot of a copied log directory and its metadata, in place of an older one.

    Shape: it is a data directory of a broker with the embedded store. Errors: OSError; ValueError if something else is there.
    """
    if path.exists() and not is_snapshot(path):
        raise ValueError(f"{path} already exists and is not a snapshot")
    path.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{path.name}.", dir=path.parent))
    try:
        copy_logs(copied, made, link=True)
        shutil.copy(copied / CLEAN_SHUTDOWN, made)
        write_metadata(made / EMBEDDED_STORE, state.metadata)
        if path.exists():
            shutil.rmtree(path)
        made.rename(path)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def is_snapshot(path: Path) -> bool:
    """Whether a directory is a data directory with metadata."""
    return Path(path, EMBEDDED_STORE).is_file()


def write_metadata(path: Path, metadata: StoredNodes) -> None:
    """Write a new file of an embedded store. Errors: StoreClosed."""
    file = NodeFile(path)
    file.open()
    try:
        file.commit(NodeChanges(metadata.nodes, [], [], []))
    finally:
        file.close()


def read_metadata(path: Path) -> StoredNodes:
    """The metadata in a copy of an embedded store's file, which is changed. Errors: StoreClosed."""
    file = NodeFile(path)
    try:
        return file.open()
    finally:
        file.close()
