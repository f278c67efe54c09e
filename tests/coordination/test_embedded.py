"""The embedded store's own behavior: its file."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from server.coordination.acl import AclId, ZnodeAclEntry
from server.coordination.embedded import EmbeddedStore, EmbeddedTree
from server.coordination.node_file import NodeChanges, NodeFile
from server.coordination.store import Create, Delete, NoNode, SetData, StoreClosed
from server.coordination.tree import CreateNode, StoredSession
from tests.support.clock import ManualClock


def test_reopened_file_has_persistent_nodes_only(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "coordination.db"
        store = await EmbeddedStore.open(path, ManualClock())
        await store.multi([Create("/a", b"0"), Create("/a/b"), Create("/a/c", b"x")])
        await store.set("/a", b"1")
        await store.create("/a/q_", sequential=True)
        await store.create("/a/e_", ephemeral=True, sequential=True)
        await store.create("/a/e", b"y", ephemeral=True)
        await store.delete("/a/c")
        before = await store.get("/a")
        await store.close()

        again = await EmbeddedStore.open(path, ManualClock())
        assert set(await again.children("/a")) == {"b", "q_0000000002"}
        data, stat = await again.get("/a")
        assert data == b"1"
        assert (stat.version, stat.czxid) == (before[1].version, before[1].czxid)
        assert (await again.get("/a/b"))[0] is None
        # Neither sequence numbers of children nor transaction ids are reused.
        assert await again.create("/a/q_", sequential=True) == "/a/q_0000000005"
        assert again.session_id != store.session_id
        made = await again.exists("/a/q_0000000005")
        assert made is not None
        assert made.czxid > before[1].pzxid
        await again.close()

    asyncio.run(body())


def test_file_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    def modes() -> set[int]:
        return {each.stat().st_mode & 0o777 for each in tmp_path.iterdir()}

    async def write(path: Path) -> None:
        store = await EmbeddedStore.open(path, ManualClock())
        await store.create("/user", b"credential", sequential=True)
        assert modes() == {0o600}
        await store.close()

    path = tmp_path / "coordination.db"
    before = os.umask(0)
    try:
        asyncio.run(write(path))
        path.chmod(0o644)  # as an earlier release left it
        (tmp_path / "coordination.db-wal").touch(0o644)
        asyncio.run(write(path))
    finally:
        os.umask(before)


def test_epoch_of_an_ephemeral_node_grows_over_restarts(tmp_path: Path) -> None:
    async def epoch() -> int:
        store = await EmbeddedStore.open(tmp_path / "coordination.db", ManualClock())
        await store.create("/broker", ephemeral=True)
        stat = await store.exists("/broker")
        assert stat is not None
        await store.close()
        return stat.czxid

    epochs = [asyncio.run(epoch()) for _ in range(4)]
    assert epochs == sorted(set(epochs))


def test_file_in_use_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "coordination.db"
        store = await EmbeddedStore.open(path, ManualClock())
        holder = (
            "import asyncio, sys, pathlib\n"
            "from server.clock import SystemClock\n"
            "from server.coordination.embedded import EmbeddedStore\n"
            "asyncio.run(EmbeddedStore.open(pathlib.Path(sys.argv[1]), SystemClock()))\n"
        )
        other = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", holder, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert other.returncode == 1
        assert "in use by another process" in other.stderr
        assert str(path) in other.stderr
        await store.close()

    asyncio.run(body())


@pytest.mark.parametrize("content", [b"not a database at all, but long enough to be one" * 100])
def test_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "coordination.db"
    path.write_bytes(content)
    with pytest.raises(StoreClosed, match=r"coordination\.db"):
        asyncio.run(EmbeddedStore.open(path, ManualClock()))
    assert path.read_bytes() == content


def test_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version=7")
    connection.execute("CREATE TABLE x (y)")
    connection.close()
    with pytest.raises(StoreClosed, match="format 7"):
        asyncio.run(EmbeddedStore.open(path, ManualClock()))


def test_missing_directory_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "none" / "coordination.db"
    with pytest.raises(StoreClosed, match="none"):
        asyncio.run(EmbeddedStore.open(path, ManualClock()))


def test_writes_at_once_share_commits(tmp_path: Path) -> None:
    async def body() -> None:
        tree = await EmbeddedTree.open(tmp_path / "coordination.db", ManualClock())
        file = tree._file
        assert file is not None
        commits = []
        plain = file.commit

        def counted(changes: NodeChanges) -> None:
            commits.append(1)
            plain(changes)

        file.commit = counted  # type: ignore[method-assign, assignment]
        store = tree.session()
        await asyncio.gather(*(store.create(f"/n{n}") for n in range(500)))
        assert len(commits) <= 2
        # Changes that are not stored need no commit.
        await store.create("/e", ephemeral=True)
        assert len(commits) <= 2
        await tree.close()

    asyncio.run(body())


def test_commits_are_synced(tmp_path: Path) -> None:
    file = NodeFile(tmp_path / "coordination.db")
    file.open()
    assert file.connection is not None
    assert file.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
    assert file.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    file.close()
    assert [path.name for path in tmp_path.iterdir()] == ["coordination.db"]


def test_read_waits_for_the_write_it_saw(tmp_path: Path) -> None:
    async def body() -> None:
        store = await EmbeddedStore.open(tmp_path / "coordination.db", ManualClock())
        order: list[str] = []

        async def write() -> None:
            await store.create("/a", b"1")
            order.append("write")

        async def read() -> None:
            assert (await store.get("/a"))[0] == b"1"
            order.append("read")

        await asyncio.gather(write(), read())
        assert order == ["write", "read"]
        await store.close()

    asyncio.run(body())


def test_failing_file_ends_the_store(tmp_path: Path) -> None:
    async def body() -> None:
        tree = await EmbeddedTree.open(tmp_path / "coordination.db", ManualClock())
        store = tree.session()
        await store.create("/a")
        assert tree._file is not None

        def broken(changes: NodeChanges) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        tree._file.commit = broken  # type: ignore[method-assign]
        outcomes = await asyncio.gather(
            store.create("/b"), store.create("/c"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [StoreClosed, StoreClosed]
        with pytest.raises(StoreClosed, match="disk I/O error"):
            await store.get("/a")
        with pytest.raises(StoreClosed):
            await store.create("/d")
        await store.close()
        await tree.close()

        again = await EmbeddedStore.open(tmp_path / "coordination.db", ManualClock())
        assert await again.children("/") == ["a"]
        await again.close()

    asyncio.run(body())


WRITER = textwrap.dedent(
    """
    import asyncio, pathlib, sys
    from server.clock import SystemClock
    from server.coordination.embedded import EmbeddedStore
    from server.coordination.store import Create, SetData

    async def main():
        store = await EmbeddedStore.open(pathlib.Path(sys.argv[1]), SystemClock())
        if await store.exists("/p") is None:
            await store.multi([Create("/p"), Create("/count", b"0")])
        n = int((await store.get("/count"))[0])
        while True:
            await store.multi([Create(f"/p/{n}"), Create(f"/p/{n}/state", b"x" * 300),
                               SetData("/count", b"%d" % (n + 1))])
            n += 1
            print(n, flush=True)

    asyncio.run(main())
    """
)


def test_killed_writer_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    path = tmp_path / "coordination.db"
    acknowledged = 0
    for round_number in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(20 + 31 * round_number):
            acknowledged = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        for line in process.stdout:
            acknowledged = int(line) if line.endswith("\n") else acknowledged
        process.wait()
        process.stdout.close()

    async def check() -> None:
        store = await EmbeddedStore.open(path, ManualClock())
        count = int((await store.get("/count"))[0] or b"")
        assert count >= acknowledged
        # Whole transactions: every counted node is there with its child, and no other.
        assert {int(name) for name in await store.children("/p")} == set(range(count))
        for n in range(count):
            assert (await store.get(f"/p/{n}/state"))[0] == b"x" * 300
        await store.close()

    asyncio.run(check())


@pytest.mark.parametrize("left", [None, b"", b"x"], ids=["missing", "empty", "one byte"])
def test_store_that_is_put_back_after_a_start_without_it_has_lost_nothing(
    tmp_path: Path, left: bytes | None
) -> None:
    path = tmp_path / "coordination.db"
    file = NodeFile(path)
    file.open()
    row = ("/a", b"1", 1, 1, 1, 0, 0, 0, 0, 0, 0, None)
    file.commit(NodeChanges([row], [], [], []))
    for name in ("coordination.db", "coordination.db-wal"):  # as it is after SIGKILL
        (tmp_path / f"kept{name}").write_bytes((tmp_path / name).read_bytes())
    file.close()
    (tmp_path / "keptcoordination.db-wal").rename(tmp_path / "coordination.db-wal")
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    with pytest.raises(StoreClosed, match=r"coordination\.db-wal beside it has changes"):
        NodeFile(path).open()
    (tmp_path / "keptcoordination.db").rename(path)
    again = NodeFile(path)
    assert [node[:2] for node in again.open().nodes] == [("/a", b"1")]
    again.close()


def test_undone_transaction_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "coordination.db"
        store = await EmbeddedStore.open(path, ManualClock())
        await store.multi([Create("/a", b"0"), Create("/a/b")])
        with pytest.raises(NoNode):
            await store.multi([Delete("/a/b"), SetData("/a", b"1"), Delete("/none")])
        await store.create("/other")
        await store.close()
        again = await EmbeddedStore.open(path, ManualClock())
        assert (await again.get("/a"))[0] == b"0"
        assert await again.children("/a") == ["b"]
        await again.close()

    asyncio.run(body())


FORMAT_1 = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE node (
  path TEXT PRIMARY KEY, data BLOB,
  czxid INTEGER NOT NULL, mzxid INTEGER NOT NULL, pzxid INTEGER NOT NULL,
  ctime INTEGER NOT NULL, mtime INTEGER NOT NULL,
  version INTEGER NOT NULL, creates INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO meta VALUES ('generation', 3);
INSERT INTO node VALUES ('/', NULL, 0, 0, 12884901889, 0, 0, 0, 1);
INSERT INTO node VALUES ('/a', X'31', 12884901889, 12884901889, 12884901889, 5, 6, 2, 0);
PRAGMA user_version=1;
"""


def test_file_of_the_first_format_is_read_and_kept(tmp_path: Path) -> None:
    async def body() -> None:
        path = tmp_path / "coordination.db"
        connection = sqlite3.connect(path)
        connection.executescript(FORMAT_1)
        connection.close()
        for _ in range(2):
            store = await EmbeddedStore.open(path, ManualClock())
            data, stat = await store.get("/a")
            assert (data, stat.version, stat.ctime_ms, stat.aversion) == (b"1", 2, 5, 0)
            await store.close()
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT value FROM meta").fetchone() == (5,)
        connection.close()

    asyncio.run(body())


def test_stored_session_and_its_nodes_come_back_only_to_one_who_keeps_sessions(
    tmp_path: Path,
) -> None:
    acl = (ZnodeAclEntry(1, AclId("ip", "127.0.0.1")),)

    async def body() -> None:
        path = tmp_path / "coordination.db"
        shared = await EmbeddedTree.open(path, ManualClock(), keep_sessions=True)
        session_id = shared.next_session_id()
        shared.take(shared.tree.open_session(session_id, StoredSession(5000, b"secret")))
        ops = [CreateNode("/e", b"x", session_id), CreateNode("/a", acl=acl)]
        shared.take(shared.tree.apply(ops, session_id, 1))
        await shared.close()

        shared = await EmbeddedTree.open(path, ManualClock(), keep_sessions=True)
        assert shared.tree.sessions == {session_id: StoredSession(5000, b"secret")}
        assert shared.tree.owned_by(session_id) == ["/e"]
        assert shared.tree.node("/a").acl == acl
        await shared.close()

        for _ in range(2):
            shared = await EmbeddedTree.open(path, ManualClock())
            assert not shared.tree.sessions
            assert set(shared.tree.nodes) == {"/", "/a"}
            assert shared.tree.node("/").creates == 2
            await shared.close()

    asyncio.run(body())
