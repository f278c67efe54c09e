"""Files below one folder, on this machine or on any file system that Spark's Hadoop client supports.

Names are relative to the folder, with `/`. A path without a scheme, or with `file:`, is this machine's, whatever the
default file system of a Spark cluster is.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

from .leases import LEASE_S, Lease, Renewal
from .problems import Problem

#: How often an object store may report a conflict between two requests for one name.
CONFLICTS = 5
#: How often a file that is replaced while it is read is read from its beginning.
READ_TRIES = 5
#: The end of the name of what Hadoop's S3A then throws.
REPLACED = ".RemoteFileChangedException"
#: Raises Problem if a name that was held may be another process's by now.
StillHeld = Callable[[], None]


class Item(NamedTuple):
    """One name in a folder; size in bytes, 0 for folders."""

    name: str
    is_folder: bool
    size: int
    modified_ms: int


class Storage(ABC):
    """What archives and checkpoints need from a file system. Errors are OSError or the JVM's, which `problems` explains."""

    #: The folder as users and Spark write it.
    root: str

    def location(self, name: str) -> str:
        """Where a file is, as Spark and (on this machine) any other program open it."""
        return f"{self.root}/{name}"

    @abstractmethod
    def list(self, folder: str) -> list[Item]:
        """The content of a folder, sorted by name; empty if there is no such folder."""

    @abstractmethod
    def read(self, name: str, last: int | None = None) -> bytes | None:
        """A file's content, or its last bytes only; None if there is no such file."""

    @abstractmethod
    def create(self, name: str, data: bytes) -> bool:
        """Write a file completely and durably, or not at all; False if a file with that name exists."""

    @abstractmethod
    def replace(self, name: str, data: bytes) -> None:
        """Write a file that appears in full, replacing any file with that name."""

    @abstractmethod
    def move(self, name: str, to: str) -> None:
        """Move a file, with everything written to it, replacing any file with the new name."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, or a folder with everything in it; does nothing if it does not exist."""

    @abstractmethod
    def hold(self, name: str) -> AbstractContextManager[StillHeld | None]:
        """Hold a name exclusively; yields None if another process holds it. Also ends with the process."""

    @abstractmethod
    def settle(self, folders: set[str]) -> None:
        """Make files that were moved into these folders durable against power loss."""


class LocalStorage(Storage):
    """Files of this machine."""

    def __init__(self, root: str) -> None:
        self.root = str(Path(root.removeprefix("file://").removeprefix("file:")).absolute())
        self._root = Path(self.root)

    def list(self, folder: str) -> list[Item]:
        """See Storage."""
        try:
            with os.scandir(self._root / folder) as entries:
                found = [
                    Item(entry.name, entry.is_dir(), status.st_size, status.st_mtime_ns // 1000_000)
                    for entry in entries
                    for status in (entry.stat(),)
                ]
        except FileNotFoundError:
            return []
        except NotADirectoryError as error:
            raise self._no_folder() from error
        return sorted(found)

    def read(self, name: str, last: int | None = None) -> bytes | None:
        """See Storage."""
        try:
            with (self._root / name).open("rb") as file:
                if last is not None:
                    size = file.seek(0, os.SEEK_END)
                    file.seek(max(0, size - last))
                return file.read()
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._no_folder() from error

    def _no_folder(self) -> Problem:
        return Problem(
            f"{self.root} cannot be a folder: there is a file of this name, or of one above it"
        )

    def create(self, name: str, data: bytes) -> bool:
        """See Storage; creating a hard link fails if the name is taken."""
        made = self._write_beside(name, data)
        try:
            (self._root / name).hardlink_to(made)
        except FileExistsError:
            return False
        finally:
            made.unlink()
        self.settle({str(Path(name).parent)})
        return True

    def replace(self, name: str, data: bytes) -> None:
        """See Storage."""
        self._write_beside(name, data).replace(self._root / name)
        self.settle({str(Path(name).parent)})

    def _write_beside(self, name: str, data: bytes) -> Path:
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with made.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            made.unlink(missing_ok=True)
            raise
        return made

    def move(self, name: str, to: str) -> None:
        """See Storage."""
        source, target = self._root / name, self._root / to
        target.parent.mkdir(parents=True, exist_ok=True)
        _sync(source)
        source.replace(target)

    def delete(self, name: str) -> None:
        """See Storage."""
        path = self._root / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    @contextmanager
    def hold(self, name: str) -> Iterator[StillHeld | None]:
        """See Storage; uses the kernel's lock on a file with that name, which is not deleted."""
        path = self._root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield lambda: None

    def settle(self, folders: set[str]) -> None:
        """See Storage; a folder's parents may also be new."""
        all_of_them = {self._root}
        for folder in folders:
            path = self._root / folder
            while path != self._root:
                all_of_them.add(path)
                path = path.parent
        for path in all_of_them:
            _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HadoopStorage(Storage):
    """Files on HDFS, or any other file system that Hadoop has a client for, through the JVM of the running Spark session."""

    def __init__(self, root: str) -> None:
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        if context is None or context._jvm is None or context._jsc is None:
            raise Problem(
                f"{root} is not on this machine, and there is no running Spark session to reach it"
            )
        self.root = root.rstrip("/")
        self._jvm: Any = context._jvm
        self._gateway: Any = context._gateway
        self._fs: Any = self._path("").getFileSystem(context._jsc.hadoopConfiguration())
        self._context: Any = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            self._fs.getUri(), context._jsc.hadoopConfiguration()
        )

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    def list(self, folder: str) -> list[Item]:
        """See Storage."""
        path = self._path(folder)
        if not self._fs.exists(path):
            return []
        found = [
            Item(
                status.getPath().getName(),
                status.isDirectory(),
                status.getLen(),
                status.getModificationTime(),
            )
            for status in self._fs.listStatus(path)
        ]
        return sorted(found)

    def read(self, name: str, last: int | None = None) -> bytes | None:
        """See Storage."""
        from py4j.protocol import Py4JJavaError

        tries = READ_TRIES
        while True:
            tries -= 1
            try:
                return self._read_once(self._path(name), last)
            except Py4JJavaError as error:
                # S3 refuses to read on in an object that was replaced after it had been opened.
                changed = error.java_exception.getClass().getName().endswith(REPLACED)
                if not changed or not tries:
                    raise

    def _read_once(self, path: Any, last: int | None) -> bytes | None:
        if not self._fs.exists(path):
            return None
        stream = self._fs.open(path)
        try:
            if last is not None:
                stream.seek(max(0, self._fs.getFileStatus(path).getLen() - last))
            return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()

    def create(self, name: str, data: bytes) -> bool:
        """See Storage; renaming onto a name that is taken fails. On S3, where renaming copies, a conditional request does."""
        if self._fs.getScheme() == "s3a":
            return self._put_if_absent(name, data)
        return self._write_and_rename(name, data, "NONE")

    def _put_if_absent(self, name: str, data: bytes) -> bool:
        """One `PutObject` with `If-None-Match: *`, which the store refuses if there is an object with that name.

        Of two at the same time one may also get a conflict (409), which does not say whether the other one will succeed.
        """
        from py4j.protocol import Py4JJavaError

        aws = self._jvm.software.amazon.awssdk
        place = self._path(name)
        condition = aws.awscore.AwsRequestOverrideConfiguration.builder()
        condition = condition.putHeader("If-None-Match", "*").build()
        request = aws.services.s3.model.PutObjectRequest.builder()
        request = request.bucket(place.toUri().getHost()).key(self._fs.pathToKey(place))
        request = request.overrideConfiguration(condition).build()
        client = self._fs.getS3AInternals().getAmazonS3Client("kwire")
        for left in reversed(range(CONFLICTS)):
            try:
                client.putObject(request, aws.core.sync.RequestBody.fromBytes(data))
                return True
            except Py4JJavaError as error:
                cause = error.java_exception
                status = cause.statusCode() if hasattr(cause, "statusCode") else 0
                if status == HTTPStatus.PRECONDITION_FAILED:
                    return False
                if status != HTTPStatus.CONFLICT or not left:
                    raise
        return False

    def replace(self, name: str, data: bytes) -> None:
        """See Storage. On S3 a file appears in full when it is closed, and renaming would first delete the one that is there."""
        if self._fs.getScheme() == "s3a":
            self._write(self._path(name), data)
        else:
            self._write_and_rename(name, data, "OVERWRITE")

    def _write_and_rename(self, name: str, data: bytes, how: str) -> bool:
        from py4j.protocol import Py4JJavaError

        folder, _, last = name.rpartition("/")
        made = self._path(f"{folder}/.{last}.{os.getpid()}.tmp")
        self._write(made, data)
        try:
            self._rename(made, self._path(name), how)
        except Py4JJavaError as error:
            self._fs.delete(made, False)
            if "FileAlreadyExistsException" in error.java_exception.getClass().getName():
                return False
            raise
        return True

    def _write(self, path: Any, data: bytes) -> None:
        stream = self._fs.create(path, True)
        try:
            stream.write(data)
            stream.hsync()
        finally:
            stream.close()

    def _rename(self, source: Any, target: Any, how: str) -> None:
        kind = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
        options = self._gateway.new_array(kind, 1)
        options[0] = getattr(kind, how)
        self._context.rename(source, target, options)

    def move(self, name: str, to: str) -> None:
        """See Storage; the file's writer has closed it, and from then on HDFS has it."""
        target = self._path(to)
        self._fs.mkdirs(target.getParent())
        self._rename(self._path(name), target, "OVERWRITE")

    def delete(self, name: str) -> None:
        """See Storage."""
        self._fs.delete(self._path(name), True)

    @contextmanager
    def hold(self, name: str) -> Iterator[StillHeld | None]:
        """See Storage; such a file system has no locks that end with their holder, so this is a lease."""
        lease = Lease(self, name)
        if not lease.take(self._waits):
            yield None
            return
        try:
            with Renewal(lease):
                yield lease.check
        except Exception:
            # The next run need not wait. Whether this works or not, the error is what counts.
            with suppress(Exception):
                lease.give_back()
            raise
        lease.give_back()

    def _waits(self, holder: str) -> None:
        print(
            f"kwire pipeline: {holder} was the last to hold {self.root}; waiting for up to {LEASE_S:.0f} s to see whether it still runs",
            file=sys.stderr,
            flush=True,
        )

    def settle(self, folders: set[str]) -> None:
        """Does nothing: such a file system keeps its own journal."""


def is_local(path: str | Path) -> bool:
    """Whether a path or URI is on this machine's file system."""
    text = str(path)
    return ":/" not in text or text.partition(":")[0] == "file"


def open_storage(path: str | Path) -> Storage:
    """The storage for a path or URI. Raises Problem for one elsewhere while no Spark session runs."""
    text = str(path)
    return LocalStorage(text) if is_local(text) else HadoopStorage(text)
