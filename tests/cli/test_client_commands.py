"""topics, produce, consume, groups, dump-log and coordination: their pure parts, then all of them on a broker."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from kwire.errors import ErrorCode
from server.__main__ import main
from server.cli.brokers import refusals, with_brokers
from server.cli.client import bootstrap_address, key_value, whole_number
from server.cli.produce import split_lines
from server.cli.reset_target import target
from server.cli.topics import as_kafka_writes_it
from server.client import brokers, contact
from server.client.brokers import Brokers
from server.client.errors import Unavailable, Unreached

from ..support.broker_process import KwireBroker

ROOT = Path(__file__).parents[2]


def test_lines_are_split_at_the_first_separator_and_keep_other_blanks() -> None:
    lines = io.BytesIO(b"k:v:w\r\nplain \n:empty key\nlast")
    assert [(key, value) for key, value, _ in split_lines(lines, b":")] == [
        (b"k", b"v:w"),
        (None, b"plain "),
        (b"", b"empty key"),
        (None, b"last"),
    ]


def test_lengths_of_lines_add_up_to_the_file() -> None:
    text = b"a\nbb\r\n\nc"
    assert sum(length for *_, length in split_lines(io.BytesIO(text), None)) == len(text)


def test_command_that_chose_a_dead_broker_is_done_again_and_prints_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = [Unavailable("broker 1: closed by the broker"), Unreached("broker 1: refused")]

    def command(_: Brokers, options: Namespace) -> int:
        print("half a table")
        if errors:
            raise errors.pop(0)
        return 0

    monkeypatch.setattr(brokers, "first_contact", lambda *_: SimpleNamespace(close=lambda: None))
    options = Namespace(bootstrap="b", properties=[], command_config=[])
    assert with_brokers(command, options) == 1  # the request may have been carried out
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == (
        "half a table\n",
        "kwire: broker 1: closed by the broker\n",
    )
    assert with_brokers(command, options) == 0
    assert capsys.readouterr().out == "half a table\n"


def test_missing_permission_is_said_in_few_words(capsys: pytest.CaptureFixture[str]) -> None:
    refused = {"name": "orders", "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    explained = SimpleNamespace(**refused, error_message="Authorization failed.")
    assert refusals([SimpleNamespace(**refused, error_message=None), explained]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "kwire: orders: not authorized to access this topic",
        "kwire: orders: not authorized to access this topic",
    ]


def test_header_or_config_may_hold_an_equals_sign_in_its_value() -> None:
    assert key_value("a=b=c") == ("a", "b=c")
    assert key_value("d=") == ("d", "")


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        (key_value, "a", "'a' is not KEY=VALUE"),
        (key_value, "=a", "not KEY=VALUE"),
        (whole_number, "-1", "not a number of 0 or more"),
        (whole_number, "x", "not a number of 0 or more"),
        (bootstrap_address, "", "not HOST:PORT"),
        (bootstrap_address, "host:abc", "not HOST:PORT"),
        (bootstrap_address, "host:0", "not HOST:PORT"),
        (bootstrap_address, "a:1,host:99999", "not HOST:PORT"),
        (bootstrap_address, "http://host:9092", "not HOST:PORT"),
        (target, "soon", "neither earliest, latest, current, an offset nor a time"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_before_connecting(
    kind: Callable[[str], object], text: str, message: str
) -> None:
    with pytest.raises(ArgumentTypeError, match=message):
        kind(text)


@pytest.mark.parametrize("text", ["localhost", "a:1", "[::1]:9092", "a:1, b:2", "10.0.0.1:65535"])
def test_addresses_to_begin_with_are_taken(text: str) -> None:
    assert bootstrap_address(text) == text


def test_topic_ids_are_written_as_kafka_does() -> None:
    assert (
        as_kafka_writes_it(UUID("8acf15c7-a8f4-40cb-b41a-8e6b356cb543").bytes)
        == "is8Vx6j0QMu0Go5rNWy1Qw"
    )
    assert as_kafka_writes_it(bytes(16)) == "-"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KwireBroker]:
    with KwireBroker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


def kwire(broker: KwireBroker, *words: str, text: str = "", code: int = 0) -> str:
    command = [sys.executable, "-m", "server", words[0], "--bootstrap", broker.bootstrap]
    done = subprocess.run(
        [*command, *words[1:]], cwd=ROOT, input=text, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


@pytest.mark.e2e
def test_topics_are_created_described_changed_and_deleted(broker: KwireBroker) -> None:
    kwire(broker, "topics", "create", "one", "two", "-p", "3", "-c", "retention.ms=99999")
    assert kwire(broker, "topics", "list").split().count("two") == 1
    kwire(broker, "topics", "alter", "one", "-p", "4", "-c", "cleanup.policy=compact")
    described = kwire(broker, "topics", "describe", "one")
    assert described.startswith("one  4 partitions")
    assert "cleanup.policy=compact retention.ms=99999" in described
    kwire(broker, "topics", "delete", "two")
    assert "two" not in kwire(broker, "topics", "list").split()
    assert "kwire: nosuch: " in kwire(broker, "topics", "describe", "nosuch", code=1)
    assert "one  4 partitions" in kwire(broker, "topics", "describe")
    assert kwire(broker, "topics", "describe", "--under-replicated") == ""
    assert "nothing to change" in kwire(broker, "topics", "alter", "one", code=2)
    said = kwire(broker, "topics", "alter", "one", "-c", "nonsense=1", code=1)
    assert said == "kwire: one: Unknown topic config name: nonsense\n"
    assert "Unknown topic config" in kwire(
        broker, "topics", "create", "x", "-c", "nonsense=1", code=1
    )


@pytest.mark.e2e
def test_what_is_produced_is_consumed(broker: KwireBroker) -> None:
    lines = [f"k{number % 7}:value {number}" for number in range(500)]
    kwire(broker, "topics", "create", "lines", "-p", "2")
    kwire(broker, "produce", "lines", "-K", ":", "-z", "gzip", "-H", "a=b", text="\n".join(lines))
    printed = kwire(broker, "consume", "lines", "-b", "-e", "-f", "json").splitlines()
    rows = [json.loads(row) for row in printed]
    assert sorted(f"{row['key']}:{row['value']}" for row in rows) == sorted(lines)
    assert all(row["headers"] == [{"key": "a", "value": "b"}] for row in rows)
    assert len(kwire(broker, "consume", "lines", "-b", "-n", "10").splitlines()) == 10
    last = kwire(broker, "consume", "lines", "-p", "1", "-o", "-2", "-e", "-f", r"%o\n")
    offsets = sorted(row["offset"] for row in rows if row["partition"] == 1)
    assert [int(offset) for offset in last.split()] == offsets[-2:]
    kwire(broker, "topics", "create", "copy", "-p", "2")
    printed_text = "\n".join(printed)
    kwire(broker, "produce", "copy", "-f", "json", "--same-partition", text=printed_text)
    copied = kwire(broker, "consume", "copy", "-b", "-e", "-f", "json")
    assert sorted(copied.replace('"copy"', '"lines"').splitlines()) == sorted(printed)


@pytest.mark.e2e
def test_what_was_written_before_a_bad_line_is_told(broker: KwireBroker) -> None:
    said = kwire(
        broker, "produce", "half", "-f", "json", text='{"value": "a"}\n{"vlue": 1}\n', code=1
    )
    assert said.startswith(
        "kwire: 1 record was written before this:\nkwire: line 2: 'vlue' is not one of "
    )


@pytest.mark.e2e
def test_consumer_that_is_terminated_leaves_its_group(broker: KwireBroker) -> None:
    kwire(broker, "produce", "left", text="a\n")
    command = [sys.executable, "-m", "server", "consume", "--bootstrap", broker.bootstrap]
    with subprocess.Popen(
        [*command, "left", "-b", "-g", "leaving"], cwd=ROOT, stdout=subprocess.PIPE
    ) as consumer:
        assert consumer.stdout is not None
        assert consumer.stdout.readline() == b"a\n"
        consumer.terminate()
        assert consumer.wait(20) == 128 + signal.SIGTERM
    described = kwire(broker, "groups", "describe", "leaving")
    assert described.startswith("leaving  Empty  0 members")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("narrow", "-p", "77"), "kwire: narrow: no partition 77; its only partition is 0"),
        (("bad name",), "kwire: bad name: Topic name"),
    ],
)
def test_record_that_cannot_be_sent_is_one_line(
    broker: KwireBroker, words: tuple[str, ...], said: str
) -> None:
    refused = kwire(broker, "produce", *words, text="x\n", code=1)
    assert refused.startswith(said)
    assert len(refused.splitlines()) == 1


@pytest.mark.e2e
def test_changed_config_holds_without_a_restart(broker: KwireBroker) -> None:
    kwire(broker, "topics", "create", "small")
    kwire(broker, "produce", "small", text="x" * 5000 + "\n")
    kwire(broker, "topics", "alter", "small", "-c", "max.message.bytes=1000")
    assert "larger than the topic allows" in kwire(
        broker, "produce", "small", text="x" * 5000 + "\n", code=1
    )
    kwire(broker, "topics", "alter", "small", "--reset", "max.message.bytes")
    kwire(broker, "produce", "small", text="x" * 5000 + "\n")


@pytest.mark.e2e
def test_groups_are_described_reset_and_deleted(broker: KwireBroker) -> None:
    kwire(broker, "topics", "create", "read", "-p", "1")
    kwire(broker, "produce", "read", text="a\nb\nc\n")
    assert kwire(broker, "consume", "read", "-b", "-g", "group", "-n", "2").split() == [
        "a",
        "b",
    ]
    assert "group" in kwire(broker, "groups", "list")
    described = kwire(broker, "groups", "describe", "group").splitlines()
    assert described[-1].split() == ["read", "0", "2", "3", "1", "-"]
    assert kwire(broker, "groups", "reset", "group", "--to", "earliest").split()[-1] == "0"
    assert kwire(broker, "consume", "read", "-g", "group", "-n", "3").split() == [
        "a",
        "b",
        "c",
    ]
    kwire(broker, "groups", "delete", "group")
    assert "group" in kwire(broker, "groups", "describe", "group", code=1)


@pytest.mark.e2e
def test_acls_are_added_listed_and_removed(tmp_path: Path) -> None:
    config = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KwireBroker(tmp_path, config=config) as broker:
        kwire(
            broker,
            "acls",
            "add",
            "--allow-principal",
            "User:a",
            "--consumer",
            "--topic",
            "t",
            "--group",
            "g",
        )
        listed = kwire(broker, "acls", "list").splitlines()
        assert [line.split() for line in listed[1:]] == [
            ["Topic", "t", "Literal", "User:a", "*", "Read", "Allow"],
            ["Topic", "t", "Literal", "User:a", "*", "Describe", "Allow"],
            ["Group", "g", "Literal", "User:a", "*", "Read", "Allow"],
        ]
        refused = kwire(
            broker, "acls", "add", "--allow-principal", "User:a", "--topic", "a/b", code=1
        )
        assert refused == "kwire: a/b: ACL binding contains invalid resource name.\n"
        remove = ("acls", "remove", "--topic", "t")
        assert "--force removes without asking" in kwire(broker, *remove, code=1)
        kept = kwire(broker, *remove, text="n\n")
        assert "Remove these ACLs? (y/n)" in kept and "nothing was removed" in kept
        assert kwire(broker, "acls", "list").count("Topic") == 2
        assert len(kwire(broker, *remove, "--operation", "Read", "--force").splitlines()) == 2
        kwire(broker, *remove, text="y\n")
        assert "Topic" not in kwire(broker, "acls", "list")
        assert kwire(broker, *remove) == "kwire: no ACLs\n"  # there is nothing to ask


@pytest.mark.e2e
def test_acls_without_an_authorizer_are_refused_in_words(broker: KwireBroker) -> None:
    said = kwire(broker, "acls", "list", code=1)
    assert said == "kwire: No Authorizer is configured on the broker\n"


def test_nobody_there_is_one_line_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    clock.sleep = lambda seconds: setattr(clock, "now", clock.now + seconds)
    monkeypatch.setattr(contact, "time", clock)
    assert main(["topics", "--bootstrap", "127.0.0.1:1", "list"]) == 1
    said = "kwire: 127.0.0.1:1: Connection refused"
    assert capsys.readouterr().err.splitlines() == [f"{said}; trying for 10 seconds", said]
    assert 10 <= clock.now < 11


@pytest.mark.e2e
def test_stopped_broker_is_dumped_and_its_metadata_moved(tmp_path: Path) -> None:
    with KwireBroker(tmp_path) as broker:
        kwire(broker, "topics", "create", "kept", "-c", "retention.ms=77777")
        kwire(broker, "produce", "kept", text="hello\n")
        segments = sorted(tmp_path.rglob("kept-0/*.log"))
    assert [segment.name for segment in segments] == ["00000000000000000000.log"]
    store = segments[0].parent.parent

    def offline(*words: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "server", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stderr
        return done.stdout

    assert "payload: hello" in offline("dump-log", str(segments[0]))
    assert "payload" not in offline("dump-log", "-b", str(segments[0]))
    offline("dump-log", "/no/such.log", code=1)
    exported = tmp_path / "metadata.json"
    offline("coordination", "export", "--data-dir", str(store), str(exported))
    assert "77777" in exported.read_text()
    other = tmp_path / "other"
    offline("coordination", "import", "--data-dir", str(other), str(exported))
    assert "77777" in offline("coordination", "export", "--data-dir", str(other))
    offline("coordination", "export", "--data-dir", str(tmp_path / "nothing"), code=1)

    # A failed export leaves no file, and an existing file is not overwritten.
    cut = tmp_path / "cut.json"
    cut.write_text(exported.read_text()[:-20])
    fresh = tmp_path / "fresh"
    offline("coordination", "import", "--data-dir", str(fresh), str(cut), code=1)
    offline("coordination", "import", "--data-dir", str(fresh), str(tmp_path / "none"), code=1)
    assert not fresh.exists()
    offline("coordination", "import", "--data-dir", str(other), str(exported), code=1)
    offline("coordination", "import", "--replace", "--data-dir", str(other), str(cut), code=1)
    assert [path.name for path in other.iterdir()] == ["coordination.db"]
    exported.write_text(exported.read_text().replace("77777", "88888"))
    offline("coordination", "import", "--replace", "--data-dir", str(other), str(exported))
    assert "88888" in offline("coordination", "export", "--data-dir", str(other))
    assert sorted(path.name for path in other.iterdir()) == [
        "coordination.db",
        "coordination.db.old",
    ]
    alien = tmp_path / "alien"
    alien.mkdir()
    (alien / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=another\n")
    offline("coordination", "import", "--data-dir", str(alien), str(exported), code=1)
    assert [path.name for path in alien.iterdir()] == ["meta.properties"]
