"""`kwire users` on a data directory: the first user of a broker."""

from __future__ import annotations

import io
from argparse import Namespace
from pathlib import Path
from typing import cast

import pytest

from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kwire.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from server.__main__ import main
from server.cli.users import add_user, delete_user
from server.client.brokers import Brokers


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def users(data_dir: str, *arguments: str) -> int:
    return main(["users", "--data-dir", data_dir, *arguments])


def listed(data_dir: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    capsys.readouterr()
    assert users(data_dir, "list") == 0
    return [line.split() for line in capsys.readouterr().out.splitlines()[1:]]


def test_users_are_added_listed_and_deleted_without_a_broker(
    data_dir: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("pw\n"))
    assert users(data_dir, "add", "alice") == 0
    file = Path(data_dir, "password")
    file.write_text("geheim\nnot this line")
    more = ("--mechanism", "SCRAM-SHA-512", "--iterations", "8192", "--password-file", str(file))
    assert users(data_dir, "add", "bob, jr.", *more) == 0
    assert listed(data_dir, capsys) == [
        ["alice", "SCRAM-SHA-256", "4096"],
        ["alice", "SCRAM-SHA-512", "4096"],
        ["bob,", "jr.", "SCRAM-SHA-512", "8192"],
    ]
    assert users(data_dir, "delete", "alice", "--mechanism", "SCRAM-SHA-256") == 0
    assert users(data_dir, "delete", "bob, jr.") == 0
    assert listed(data_dir, capsys) == [["alice", "SCRAM-SHA-512", "4096"]]
    assert users(data_dir, "delete", "bob, jr.") == 1
    assert "bob, jr.: there is no such credential" in capsys.readouterr().err


@pytest.mark.parametrize("given", ["", "\n"])
def test_empty_password_is_refused(
    given: str, data_dir: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    assert users(data_dir, "add", "alice") == 1
    assert "the password is empty" in capsys.readouterr().err
    assert not Path(data_dir).exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["add", ""], "at least one"),
        (["add", "jörg"], "ASCII"),
        (["add", "a", "--iterations", "4095"], "4096 to 16384"),
        (["add", "a", "--iterations", "16385"], "4096 to 16384"),
        (["add", "a", "--mechanism", "PLAIN"], "'PLAIN' is not one of"),
    ],
)
def test_what_a_broker_would_refuse_is_refused_at_once(
    arguments: list[str], words: str, data_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        users(data_dir, *arguments)
    assert words in capsys.readouterr().err


def test_missing_password_file_is_named(data_dir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert users(data_dir, "add", "a", "--password-file", "/nowhere/pw") == 1
    assert "/nowhere/pw" in capsys.readouterr().err


class Asked:
    """A controller that accepts every change, and the changes."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, int]] = []

    def ask(self, request: object) -> DescribeUserScramCredentialsResponse:
        infos = [CredentialInfo(mechanism=each, iterations=4096) for each in (1, 2)]
        row = DescribeUserScramCredentialsResult(user="alice", credential_infos=infos)
        return DescribeUserScramCredentialsResponse(results=[row])

    def ask_controller(
        self, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        self.changes.append((len(request.upsertions), len(request.deletions)))
        return AlterUserScramCredentialsResponse(results=[])


def test_each_credential_has_a_request_of_its_own() -> None:
    """KRaft's controllers refuse two for one user: "A user credential cannot be altered twice in the same request"."""
    options = Namespace(user="alice", mechanism=None, password="secret", iterations=4096)
    asked = Asked()
    assert add_user(cast(Brokers, asked), options) == 0
    assert delete_user(cast(Brokers, asked), options) == 0
    assert asked.changes == [(1, 0), (1, 0), (0, 1), (0, 1)]


@pytest.mark.parametrize("verb", [["list"], ["delete", "alice"]])
def test_misspelled_directory_is_named_and_not_created(
    verb: list[str], data_dir: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert users(data_dir, *verb) == 1
    said = f"kwire: {data_dir}/coordination.db: no store here; name its folder with --data-dir\n"
    assert capsys.readouterr().err == said
    assert not Path(data_dir).exists()


@pytest.mark.parametrize("answers", [[], ["pw"]])
def test_ctrl_d_at_the_prompt_for_a_password_is_one_line(
    answers: list[str],
    data_dir: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(prompt: str) -> str:
        if not answers:
            raise EOFError
        return answers.pop()

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("getpass.getpass", asked)
    assert users(data_dir, "add", "alice") == 1
    assert capsys.readouterr().err == "\nkwire: no password was given\n"
