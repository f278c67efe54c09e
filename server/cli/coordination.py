"""`kwire coordination`: export cluster metadata from a store, or import it into one."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TextIO, cast

from .client import Progress
from .serve import DEFAULT_DATA_DIR
from .stores import NoStore, add_broker_settings, choose_store, embedded_path, open_store

#: The new file that an import writes, and the name of the old one it replaces.
NEW_STORE = "coordination.db.new"
OLD_STORE = "coordination.db.old"


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire coordination` and their options."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb, summary, file in (
        ("export", "write all metadata as lines of JSON", "where to (default: standard output)"),
        ("import", "read what export wrote", "where from (default: standard input)"),
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
            "--zookeeper", metavar="HOSTS", help="host:port,.../chroot of a ZooKeeper ensemble"
        )
        add_broker_settings(command, "for its store, and for the login and TLS at ZooKeeper")
        if verb == "import":
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
    from ..log.meta_properties import CorruptMetaProperties

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # what matters is in the StoreError
    try:
        choose_store(options)
        count = asyncio.run(export(options) if options.verb == "export" else import_(options))
    except BrokenPipeError:
        raise
    except (NoStore, StoreError, BadDocument, CorruptMetaProperties, OSError, ValueError) as error:
        print(f"kwire: {error}", file=sys.stderr)
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
            Progress("export", None, "node") as progress,
        ):

            def write(line: str) -> None:
                file.write(line)
                progress.advance()

            return await export_tree(store, write)
    finally:
        await store.close()


async def import_(options: Namespace) -> int:
    """Read metadata; returns the number of nodes."""
    from ..coordination.transfer import import_tree

    with (
        open_file(options.file, "r", sys.stdin) as file,
        Progress("import", None, "node") as progress,
    ):
        lines = counted(file, progress)
        if options.zookeeper is None:
            return await import_embedded(options, lines)
        store = await open_store(options, must_exist=False)
        try:
            return await import_tree(store, lines, replace=options.replace)
        finally:
            await store.close()


async def import_embedded(options: Namespace, lines: Iterable[str]) -> int:
    """Write a separate store file, which replaces the old one when it is complete."""
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
            raise
    finally:
        if old is not None:
            await old.close()
    if topics:
        path.replace(path.with_name(OLD_STORE))
    new.replace(path)
    FileLayer().sync_directory(str(path.parent))
    return count


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


def counted(lines: Iterable[str], progress: Progress) -> Iterator[str]:
    """The same lines; each one advances the bar."""
    for line in lines:
        progress.advance()
        yield line


def open_file(path: str | None, mode: str, default: TextIO) -> AbstractContextManager[TextIO]:
    """A file, or a standard stream that stays open. What is written may hold secrets, so only its owner may read it."""
    if path is None:
        return nullcontext(default)

    def for_the_owner(name: str, flags: int) -> int:
        return os.open(name, flags, 0o600)

    return cast(TextIO, open(path, mode, encoding="utf-8", opener=for_the_owner))
