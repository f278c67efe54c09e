"""Mistakes in calls of every command: the last line that each one says, and its exit status.

`mistakes.txt` is a table to be read as a whole, so that the same mistake is told in the same words by all commands. A line
`STATUS kwire ...` is a call; the line below is the last one that it prints on standard error, or the first one of its output if
there is none. `python -m tests.cli.test_mistakes < CALLS` prints such rows for calls.
"""

from __future__ import annotations

import contextlib
import io
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from kwire.testing import Broker
from server.__main__ import main

TABLE = Path(__file__).with_name("mistakes.txt")


def calls() -> list[tuple[int, str, str]]:
    """Status, call and message of each row."""
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    rows = []
    for call, said in zip(lines[::2], lines[1::2], strict=True):
        status, _, words = call.partition(" ")
        rows.append((int(status), words, said.strip()))
    return rows


@contextlib.contextmanager
def places(folder: Path) -> Iterator[dict[str, str]]:
    """What the variables of the table stand for.

    $A is a broker with the topics `orders` and `public` and the group `readers`; $B one that denies its clients the cluster,
    the topic `secret`, the group `hidden` and the transactional id `mine`; $CLOSED an address where nobody listens, $TMP a directory with files.
    """
    (folder / "lines").write_text("one\ntwo\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(b"\xff\xfe\x00")
    (folder / "bad.properties").write_text("a=\\u00zz\n")
    (folder / "single").mkdir()
    (folder / "single/meta.properties").write_text("version=0\nbroker.id=0\n")
    (folder / "workers/worker-1").mkdir(parents=True)
    (folder / "workers/worker-1/meta.properties").write_text("version=0\nbroker.id=1\n")
    (folder / "workers/worker-0").mkdir()
    common = {"auto.create.topics.enable": "false"}
    strict = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with (
        socket.create_server(("127.0.0.1", 0)) as closed,
        Broker(common) as a,
        Broker(common | strict) as b,
    ):
        found = {"A": a.bootstrap_servers, "B": b.bootstrap_servers, "TMP": str(folder)}
        found["CLOSED"] = f"127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        for words in (
            "topics --bootstrap $A create orders public",
            "produce --bootstrap $A orders $TMP/lines",
            "consume --bootstrap $A orders -b -n 1 -g readers",
            "topics --bootstrap $B create secret public",
            "produce --bootstrap $B public $TMP/lines",
            "consume --bootstrap $B public -b -n 1 -g readers",
            "acls --bootstrap $B add --deny-principal User:ANONYMOUS --resource-pattern-type prefixed --topic secret --group hidden"
            " --transactional-id mine",
            "acls --bootstrap $B add --deny-principal User:ANONYMOUS --cluster",
        ):
            assert outcome(f"kwire {words}", found)[0] == 0, words
        yield found


def outcome(words: str, found: dict[str, str]) -> tuple[int, str]:
    """Status and message of a call in this process, with the variables in place of what they stand for."""
    for name, value in found.items():
        words = words.replace(f"${name}", value)
    errors, output = io.StringIO(), io.TextIOWrapper(io.BytesIO())
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(output):
        try:
            status = main(shlex.split(words)[1:])
        except SystemExit as ended:
            status = int(ended.code or 0)
    output.seek(0)
    lines = errors.getvalue().splitlines()[-1:] or output.read().splitlines()[:1]
    said = "".join(lines).strip()
    for name, value in found.items():
        said = said.replace(value, f"${name}")
    return status, said


def test_mistakes_are_told_in_the_words_of_the_table(tmp_path: Path) -> None:
    rows = calls()
    assert len(rows) > 150
    with places(tmp_path) as found:
        assert [(*outcome(words, found), words) for _, words, _ in rows] == [
            (status, said, words) for status, words, said in rows
        ]


def test_question_about_an_unknown_name_creates_no_topic(kafka: Broker) -> None:
    at = {"A": kafka.bootstrap_servers}
    for words in (
        "explain --bootstrap $A nosuch",
        "groups --bootstrap $A describe nosuch",
        "groups --bootstrap $A delete nosuch",
        "groups --bootstrap $A delete-offsets nosuch -t t",
        "transactions --bootstrap $A describe nosuch",
    ):
        assert outcome(f"kwire {words}", at)[0] == 1, words
    assert outcome("kwire topics --bootstrap $A list --all", at) == (0, "")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder, places(Path(folder)) as found:
        for line in sys.stdin:
            words = line.strip()
            status, said = outcome(words, found)
            sys.stdout.write(f"{status} {words}\n    {said}\n")
            sys.stdout.flush()
