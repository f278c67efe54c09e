"""A directory left by kwire after kill -9, torn ends and lost indexes: Apache Kafka's tools find no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...support.broker_process import KwireBroker
from ...support.kafka_tools import ToolServer
from .content import COMPACTED, SETTINGS, Content, compact, create_topics, read_everything
from .dumped import complaints_of, faults

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.slow]


def newest(data: Path, folder: str, suffix: str) -> Path:
    return max((data / folder).glob(f"*{suffix}"))


def test_recovered_directory_is_without_fault(tmp_path: Path, tools: ToolServer) -> None:
    """Rolled, compacted, transactional and deleted segments, after two kills with damage."""
    broker = KwireBroker(tmp_path, config=SETTINGS)
    content = Content(seed=3)
    try:
        broker.start()
        create_topics(broker.bootstrap)
        for damage in (tear_ends, lose_indexes):
            content.write(broker.bootstrap, old_formats=False)
            content.write_transactions(broker.bootstrap)
            content.delete_beginning(broker.bootstrap, broker.log_dir)
            broker.kill()
            damage(broker.log_dir)
            broker.start()
            rows = read_everything(broker.bootstrap, "read_uncommitted")
            content.check(rows, read_everything(broker.bootstrap, "read_committed"))
        content.write(broker.bootstrap, old_formats=False)
        compact(broker.bootstrap, broker.log_dir, COMPACTED[:1], INTERNAL_WRITTEN)
        broker.stop()
        assert faults(tools, broker.log_dir, {}) == []
    finally:
        broker.kill()


INTERNAL_WRITTEN = ("__transaction_state",)


def tear_ends(data: Path) -> None:
    """Write half a batch after the last whole one, as if the machine had stopped during a write."""
    for folder in ("codecs-0", "codecs-4", "transactions-0", "compacted-1"):
        path = newest(data, folder, ".log")
        whole = path.read_bytes() or newest(data, "appendtime-0", ".log").read_bytes()
        with path.open("ab") as log:
            log.write(whole[: len(whole) // 2][:70])


def lose_indexes(data: Path) -> None:
    """Remove, truncate or replace indexes by old ones, and damage snapshots."""
    for path in sorted(data.glob("codecs-*/*.index"))[::2]:
        path.unlink()
    for path in sorted(data.glob("codecs-*/*.timeindex"))[::3]:
        path.write_bytes(path.read_bytes()[:-5])
    for path in data.glob("transactions-*/*.snapshot"):
        path.write_bytes(b"nonsense")
    for path in data.glob("transactions-*/*.txnindex"):
        path.unlink()


def test_damage_is_seen_by_the_tool(tmp_path: Path, tools: ToolServer) -> None:
    """Shows that the tool can find faults: a wrong index entry, a wrong byte."""
    broker = KwireBroker(tmp_path, config=SETTINGS)
    with broker:
        create_topics(broker.bootstrap)
        Content(seed=4).write(broker.bootstrap, old_formats=False)
    folder = broker.log_dir / "codecs-0"
    index, log = max(folder.glob("*.index")), min(folder.glob("*.log"))
    assert index.stat().st_size
    entries = bytearray(index.read_bytes())
    entries[3] ^= 1
    index.write_bytes(entries)
    checked = ("--deep-iteration", "--verify-index-only")
    assert any("Mismatches" in line for line in complaints_of(tools, [index], checked))
    data = bytearray(log.read_bytes())
    data[70] ^= 1
    log.write_bytes(data)
    assert complaints_of(tools, [log], checked)
