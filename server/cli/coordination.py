"""`kwire coordination`: export cluster metadata from a store, or import it into a store."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

from .client import ProgressBar
from .output import failure
from .serve import DEFAULT_DATA_DIR
from .stores import NoStore, add_broker_settings, choose_store, embedded_path, open_store

if TYPE_CHECKING:
    from ..coordination.kraft_image import KraftImage
    from ..log.log_directory import LogDirectory
    from ..log.metadata_log import MetadataRecord

#: The new file that an import writes, and the name of the file that it replaces.
NEW_STORE = "coordination.db.new"
OLD_STORE = "coordination.db.old"


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire coordination` and their options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, summary, file in (
        (
            "export",
            "write all metadata as JSON lines",
            "file to write to (default: standard output)",
        ),
        (
            "import",
            "read metadata that export has written",
            "file to read from (default: standard input)",
        ),
    ):
        command = verbs.add_parser(
            verb, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
        )
        where = command.add_mutually_exclusive_group()
        where.add_argument(
            "--data-dir",
            metavar="DIR",
            help=f"data directory of the embedded store (default ./{DEFAULT_DATA_DIR}); its broker must be stopped",
        )
        where.add_argument(
            "--zookeeper", metavar="HOSTS", help="ZooKeeper ensemble, as host:port,.../chroot"
        )
        add_broker_settings(command, "for its store, and for the login and TLS at ZooKeeper")
        if verb == "import":
            where.add_argument(
                "--in-place",
                action="store_true",
                help="with --from-kraft: write the store into DIR, which kwire then serves; DIR must be a copy,"
                " because Apache Kafka must not use it again",
            )
            command.add_argument(
                "--from-kraft",
                metavar="DIR",
                help="import the metadata of a KRaft cluster instead of an export: DIR is the log directory (or a copy"
                " of it) of a stopped broker or controller of Apache Kafka 3.9 or 4.x; it is not changed",
            )
            command.add_argument(
                "--replace",
                action="store_true",
                help="replace the topics that the store already has; with an embedded store,"
                f" the old file is kept as {OLD_STORE}",
            )
        command.add_argument("file", metavar="FILE", nargs="?", help=file)


def run(options: Namespace) -> int:
    """Run the verb."""
    import logging

    from ..coordination.store import StoreError
    from ..coordination.transfer import BadDocument
    from ..log.log_directory import LogDirectoryError
    from ..log.meta_properties import CorruptMetaProperties
    from ..log.metadata_log import BadMetadataLog

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the StoreError says enough
    try:
        if options.verb == "import":
            choose_kraft(options)
        choose_store(options)
        if options.verb == "import":
            refuse_original(options)
        count = asyncio.run(export(options) if options.verb == "export" else import_(options))
    except (
        NoStore,
        StoreError,
        BadDocument,
        BadMetadataLog,
        CorruptMetaProperties,
        LogDirectoryError,
        OSError,
        ValueError,
    ) as error:
        print(f"kwire: {failure(error)}", file=sys.stderr)
        return 1
    print(f"{count} nodes {options.verb}ed", file=sys.stderr)
    return 0


async def export(options: Namespace) -> int:
    """Write the metadata; returns the number of nodes."""
    from ..coordination.transfer import export_tree

    store = await open_store(options, must_exist=True)
    try:
        with (
            open_file(options.file, "w", sys.stdout) as file,
            ProgressBar("export", None, "node") as progress,
        ):

            def write(line: str) -> None:
                file.write(line)
                progress.advance()

            return await export_tree(store, write)
    finally:
        await store.close()


def choose_kraft(options: Namespace) -> None:
    """Check the options for KRaft, and set `data_dir` for --in-place. Errors: NoStore."""
    source = options.from_kraft
    if options.in_place:
        if source is None:
            raise NoStore("--in-place needs --from-kraft")
        options.data_dir = source
    elif (
        source is not None
        and options.data_dir is None
        and options.zookeeper is None
        and options.config is None
    ):
        raise NoStore(
            "name the destination of the metadata: --data-dir, --zookeeper, or --in-place if DIR is a copy that kwire is"
            " to serve"
        )
    if source is not None and options.file is not None:
        raise NoStore("give either --from-kraft or a file to import")


def refuse_original(options: Namespace) -> None:
    """Do not write into the directory of an Apache Kafka broker without --in-place. Errors: NoStore."""
    source = options.from_kraft
    if source is None or options.in_place or options.zookeeper is not None:
        return
    if Path(options.data_dir).resolve() == Path(source).resolve():
        raise NoStore(
            f"{source} would be changed: if it is a copy, which Apache Kafka will not use"
            " again, give --in-place"
        )


async def import_(options: Namespace) -> int:
    """Read metadata; returns the number of nodes."""
    from ..coordination.transfer import import_tree

    with ExitStack() as stack:
        source = (
            stack.enter_context(open_file(options.file, "r", sys.stdin))
            if options.from_kraft is None
            else stack.enter_context(kraft_lines(options))
        )
        progress = stack.enter_context(ProgressBar("import", None, "node"))
        lines = counted(source, progress)
        if options.zookeeper is None:
            return await import_embedded(options, lines)
        store = await open_store(options, must_exist=False)
        try:
            return await import_tree(store, lines, replace=options.replace)
        finally:
            await store.close()


async def import_embedded(options: Namespace, lines: Iterable[str]) -> int:
    """Write a separate store file, which replaces the old file when it is complete."""
    from ..clock import SystemClock
    from ..coordination.embedded import EmbeddedStore
    from ..coordination.transfer import BadDocument, import_tree, topics_in
    from ..log.file_layer import FileLayer

    path = embedded_path(options.data_dir, must_exist=False)
    new = path.with_name(NEW_STORE)
    old = await EmbeddedStore.open(path, SystemClock()) if path.exists() else None
    try:
        topics = await topics_in(old) if old is not None else 0
        if topics and not options.replace:
            raise BadDocument(
                f"{path} already has {topics} topics; use --replace to replace them with the export"
            )
        is_new = not path.parent.exists()
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_store(new)
        try:
            store = await EmbeddedStore.open(new, SystemClock())
            try:
                count = await import_tree(store, lines, cluster_id=cluster_of(path.parent))
            finally:
                await store.close()
        except BaseException:
            remove_store(new)
            if is_new:
                with suppress(OSError):
                    path.parent.rmdir()
            raise
    finally:
        if old is not None:
            await old.close()
    if topics:
        path.replace(path.with_name(OLD_STORE))
    new.replace(path)
    FileLayer().sync_directory(str(path.parent))
    return count


@contextmanager
def kraft_lines(options: Namespace) -> Iterator[Iterable[str]]:
    """The export lines for the metadata in a KRaft directory, which is locked in the meantime.

    Omitted metadata is printed. Errors: BadMetadataLog, LogDirInUse, CorruptMetaProperties, OSError.
    """
    from kwire.errors import WireError

    from ..coordination.kraft_image import KraftImage
    from ..coordination.kraft_nodes import counted as counted_kinds
    from ..coordination.kraft_nodes import nodes_of
    from ..coordination.transfer import HEADER, line_of
    from ..log.file_layer import FileLayer
    from ..log.log_directory import LogDirectory
    from ..log.metadata_log import BadMetadataLog, MetadataLog

    directory = LogDirectory(layer := FileLayer(), options.from_kraft)
    if not Path(options.from_kraft).is_dir():
        raise NotADirectoryError(f"{directory.path} is not a directory")
    with ExitStack() as stack:
        for each in {options.from_kraft, options.data_dir or options.from_kraft}:
            lock_if_used(stack, LogDirectory(layer, each))
        meta = directory.meta_properties()
        if meta is None or meta.cluster_id is None:
            raise BadMetadataLog(
                f"{directory.path} has no meta.properties with the id of its cluster: name the log directory"
                " of a broker or controller, in which __cluster_metadata-0 is"
            )
        log = MetadataLog(layer, directory.path)
        image = KraftImage()
        try:
            for record in log.records():
                take(image, record)
        except (WireError, KeyError) as error:
            raise BadMetadataLog(f"{record.path}, offset {record.offset}: {error}") from error
        converted = nodes_of(image, meta.cluster_id, log.epoch)
        said = ", ".join(f"{count} {kind}" for kind, count in counted_kinds(image).items())
        snapshot = "" if log.snapshot is None else f" (snapshot of {log.snapshot.end_offset})"
        print(f"metadata up to offset {log.end_offset}{snapshot}: {said}", file=sys.stderr)
        for damaged in log.damaged:
            print(f"note: a snapshot is damaged and was not read, {damaged}", file=sys.stderr)
        if log.torn is not None:
            print(f"note: the end of {log.torn} is cut short and was not read", file=sys.stderr)
        for note in converted.notes:
            print(f"note: {note}", file=sys.stderr)
        for line in converted.left_out:
            print(f"left out: {line}", file=sys.stderr)
        yield (
            HEADER,
            *(line_of(path, data) for path, data in sorted(converted.nodes.items(), key=depth)),
        )


def take(image: KraftImage, record: MetadataRecord) -> None:
    """Decode a record and apply it; unknown records of later releases are counted. Errors: WireError, KeyError."""
    from kwire.messages.internal.cluster_metadata_frames import UnknownRecord, decode_frame

    try:
        message, _ = decode_frame(record.value)
    except UnknownRecord as unknown:
        image.others[f"API key {unknown.api_key}"] += 1
    else:
        image.apply(message)


def depth(node: tuple[str, bytes | None]) -> tuple[int, str]:
    """A sort key that puts parents before their children."""
    return node[0].count("/"), node[0]


def lock_if_used(stack: ExitStack, directory: LogDirectory) -> None:
    """Lock a log directory if a broker has used it. Errors: LogDirInUse, OSError."""
    from ..log.log_directory import LOCK

    if directory.layer.file_size(directory.file(LOCK)) is not None:
        directory.lock()
        stack.callback(directory.unlock)


def cluster_of(data_dir: Path) -> str | None:
    """The id of the directory's cluster; None if it is new. Errors: CorruptMetaProperties."""
    from ..log.file_layer import FileLayer
    from ..log.log_directory import LogDirectory

    meta = LogDirectory(FileLayer(), str(data_dir)).meta_properties()
    return None if meta is None else meta.cluster_id


def remove_store(path: Path) -> None:
    """Remove a store's file and its log, if they exist."""
    for name in (path.name, f"{path.name}-wal"):
        path.with_name(name).unlink(missing_ok=True)


def counted(lines: Iterable[str], progress: ProgressBar) -> Iterator[str]:
    """The same lines; each one advances the bar."""
    for line in lines:
        progress.advance()
        yield line


def open_file(path: str | None, mode: str, default: TextIO) -> AbstractContextManager[TextIO]:
    """A file, or a standard stream that stays open. Written files may contain secrets, so only their owner may read
    them.
    """
    if path is None:
        return nullcontext(default)

    def for_the_owner(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    return cast(TextIO, open(path, mode, encoding="utf-8", opener=for_the_owner))
