"""The file of an embedded tree: its lasting part, in SQLite.

| table | column | what |
|---|---|---|
| node | path (key), data, czxid, mzxid, pzxid, ctime, mtime, version, creates, aversion, owner, acl | every stored node |
| session | id (key), timeout, password | sessions that outlive the process (`zookeeper_server`) |
| meta | key, value | `generation`: how often the file was opened |

`owner` is a session of the table, CONTAINER or 0; `acl` is null for the open list. Format 1 had
neither sessions nor the last three columns; such a file is upgraded when it is opened.

Recovery is left to SQLite: its write-ahead log with `synchronous=FULL` makes commits atomic.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from .acl import Acl, decode_acl, encode_acl
from .paths import OTHER_FORM, MalformedNode, why
from .store import StoreClosed
from .tree import Node, NodeTree, StoredSession

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

APPLICATION_ID = 0x6B776972  # "kwir", shown by file(1)
FORMAT = 2
OWNER_ONLY = 0o600
EMPTY = 1  # the bytes of a file that SQLite takes for an empty database
SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE node (
  path TEXT PRIMARY KEY, data BLOB,
  czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
  ctime INTEGER NOT NULL, mtime INTEGER NOT NULL,
  version INTEGER NOT NULL, creates INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', 0);
"""
#: The statements that upgrade a file from a format to the next one.
UPGRADES = {
    0: SCHEMA,
    1: """
ALTER TABLE node ADD COLUMN aversion INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN owner INTEGER NOT NULL DEFAULT 0;
ALTER TABLE node ADD COLUMN acl TEXT;
CREATE TABLE session (
  id INTEGER PRIMARY KEY, timeout INTEGER NOT NULL, password BLOB NOT NULL
) WITHOUT ROWID;
""",
}
UPSERT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

NodeRow: TypeAlias = tuple[
    str, bytes | None, int, int, int, int, int, int, int, int, int, str | None
]
SessionRow: TypeAlias = tuple[int, int, bytes]


class StoredNodes(NamedTuple):
    """The content of a file."""

    generation: int
    nodes: list[NodeRow]
    sessions: list[SessionRow]


class NodeChanges(NamedTuple):
    """One group of changes: rows to write, keys to delete."""

    upserts: list[NodeRow]
    deletes: list[tuple[str]]
    session_upserts: list[SessionRow]
    session_deletes: list[tuple[int]]


class NodeFile:
    """The SQLite file; all calls are made on one thread other than the event loop's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.connection: sqlite3.Connection | None = None

    def open(self) -> StoredNodes:
        """Open or create the file, increment its generation, and read every row.

        Errors: StoreClosed if another process has it open, it is not a kwire store, or it is gone and its -wal is not.
        """
        import sqlite3

        self._refuse_lone_log()
        try:
            self._close_to_others()
            connection = sqlite3.connect(self.path, timeout=0.1, isolation_level=None)
        except (sqlite3.Error, OSError) as error:
            raise StoreClosed(str(self.path), f"cannot open the store ({error})") from error
        self.connection = connection
        try:
            # Exclusive before the first access: no -shm file is created, and a second process is refused.
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("BEGIN IMMEDIATE")
            self._upgrade(connection)
            connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'generation'")
            generation = connection.execute(
                "SELECT value FROM meta WHERE key = 'generation'"
            ).fetchone()[0]
            nodes: list[NodeRow] = connection.execute("SELECT * FROM node").fetchall()
            sessions: list[SessionRow] = connection.execute("SELECT * FROM session").fetchall()
            connection.execute("COMMIT")
        except sqlite3.OperationalError as error:
            self.close()
            if "locked" in str(error):
                raise StoreClosed(
                    str(self.path), "the store is in use by another process or another broker"
                ) from error
            raise StoreClosed(str(self.path), f"cannot open the store ({error})") from error
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreClosed(str(self.path), f"not a store, or damaged ({error})") from error
        except StoreClosed:
            self.close()
            raise
        return StoredNodes(generation, nodes, sessions)

    def _refuse_lone_log(self) -> None:
        """Leave a -wal file without its database alone: SQLite would delete it, with the changes that only it has."""
        if _size(self.path) > EMPTY or _size(self._log) == 0:
            return
        raise StoreClosed(
            str(self.path),
            f"the store is missing or empty, but {self._log.name} beside it has changes that belong to it;"
            f" restore the store, or, to begin anew, move {self._log.name} away",
        )

    @property
    def _log(self) -> Path:
        return Path(f"{self.path}-wal")

    def _close_to_others(self) -> None:
        """Let only the owner read the file, regardless of the umask, since it holds the credentials of users.

        SQLite gives a new -wal file the permissions of the database file, but does not change an existing one.
        """
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY))
        for path in (self.path, self._log):
            try:
                if stat.S_IMODE(path.stat().st_mode) != OWNER_ONLY:
                    path.chmod(OWNER_ONLY)
            except FileNotFoundError:
                continue

    def _upgrade(self, connection: sqlite3.Connection) -> None:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise StoreClosed(
                str(self.path), f"the store has format {found}, this program reads {FORMAT}"
            )
        if found == FORMAT:
            return
        for before in range(found, FORMAT):
            for statement in UPGRADES[before].split(";\n"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={FORMAT}")

    def commit(self, changes: NodeChanges) -> None:
        """Write one group of changes durably. Errors: sqlite3.Error."""
        connection = self.connection
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("DELETE FROM node WHERE path = ?", changes.deletes)
        connection.executemany(UPSERT, changes.upserts)
        if changes.session_upserts or changes.session_deletes:
            connection.executemany("DELETE FROM session WHERE id = ?", changes.session_deletes)
            connection.executemany(
                "INSERT OR REPLACE INTO session VALUES (?, ?, ?)", changes.session_upserts
            )
        connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file; SQLite merges the write-ahead log into it."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def tree_of(stored: StoredNodes) -> NodeTree:
    """The tree that a file holds; its transactions continue from the file's generation."""
    tree = NodeTree(stored.generation << 32)
    acls: dict[str, Acl | None] = {}
    link = tree.link
    for row in stored.nodes:
        node = Node(row[1], row[2], row[5], row[10])
        node.mzxid = row[3]
        node.pzxid = row[4]
        node.mtime_ms = row[6]
        node.version = row[7]
        node.creates = row[8]
        node.aversion = row[9]
        text = row[11]
        if text is not None:
            if text not in acls:
                try:
                    acls[text] = decode_acl(text)
                except (*OTHER_FORM, RecursionError) as error:
                    raise MalformedNode(row[0], f"its permissions: {why(error)}") from error
            node.acl = acls[text]
        link(row[0], node)
    tree.link_children()
    for session_id, timeout_ms, password in stored.sessions:
        tree.sessions[session_id] = StoredSession(timeout_ms, password)
    return tree


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def changes_of(tree: NodeTree, paths: Iterable[str], session_ids: Iterable[int]) -> NodeChanges:
    """The changes that bring the file's nodes and sessions to the state of the tree."""
    changes = NodeChanges([], [], [], [])
    for path in paths:
        node = tree.nodes.get(path)
        if node is None or not tree.is_stored(node):
            changes.deletes.append((path,))
            continue
        changes.upserts.append(
            (
                path,
                node.data,
                node.czxid,
                node.mzxid,
                node.pzxid,
                node.ctime_ms,
                node.mtime_ms,
                node.version,
                node.creates,
                node.aversion,
                node.owner,
                encode_acl(node.acl),
            )
        )
    for session_id in session_ids:
        session = tree.sessions.get(session_id)
        if session is None:
            changes.session_deletes.append((session_id,))
        else:
            changes.session_upserts.append((session_id, session.timeout_ms, session.password))
    return changes
