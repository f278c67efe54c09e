"""The entry point: standard streams that are closed or full, and Ctrl-C at any moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kwire.testing import Broker

ROOT = Path(__file__).parents[2]
NO_ROOM, CLOSED = "No space left on device", "Bad file descriptor"


def in_shell(redirection: str, *words: str) -> tuple[int, str]:
    """Status and standard error of a command with a shell's redirection."""
    command = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "server"]
    done = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("redirection", "why"), [("> /dev/full", NO_ROOM), (">&-", CLOSED)])
def test_output_that_cannot_be_written_is_one_line_and_status_1(
    redirection: str, why: str, kafka: Broker, tmp_path: Path
) -> None:
    log = tmp_path / "00000000000000000000.log"
    log.touch()
    kafka.topic("t")
    kafka.produce("t", "a")
    at = ("--bootstrap", kafka.bootstrap_servers)
    for words in (
        ("--version",),
        ("--help",),
        ("topics", "--help"),
        ("completion", "bash"),
        ("topics", *at, "list"),
        ("topics", *at, "--output", "json", "list"),
        ("consume", *at, "t", "-b", "-e"),
        ("dump-log", str(log)),
    ):
        said = in_shell(redirection, *words)
        assert said == (1, f"kwire: standard output: {why}\n"), words


def test_command_without_output_does_not_need_standard_output(kafka: Broker) -> None:
    at = ("--bootstrap", kafka.bootstrap_servers)
    assert in_shell(">&-", "topics", *at, "create", "one") == (0, "")
    assert in_shell("> /dev/full", "topics", *at, "create", "two") == (0, "")


def test_closed_standard_input_is_one_line_and_status_1(kafka: Broker) -> None:
    at = ("--bootstrap", kafka.bootstrap_servers)
    said = (1, f"kwire: standard input: {CLOSED}\n")
    assert in_shell("<&-", "produce", *at, "t") == said
    assert in_shell("<&-", "users", *at, "add", "alice") == said


def test_messages_that_nobody_can_read_do_not_stop_a_command(kafka: Broker) -> None:
    words = ("topics", "--bootstrap", kafka.bootstrap_servers, "-X", "linger.ms=1", "create")
    assert in_shell("2> /dev/full", *words, "one") == (0, "")
    assert in_shell("<&- >&- 2>&-", *words, "two") == (0, "")


def test_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    writer, status = [sys.executable, "-m", "server", "completion", "bash"], tmp_path / "status"
    command = f'("$@"; echo $? > {status}) | head -c 1 > /dev/null'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", *writer], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.stderr, status.read_text()) == ("", "0\n")


@pytest.mark.parametrize(("before", "after"), [("", (-2, "")), ("trap '' INT; ", (0, "went on\n"))])
def test_ctrl_c_while_the_script_looks_for_kwire_leaves_no_traceback(
    before: str, after: tuple[int, str], tmp_path: Path
) -> None:
    package = tmp_path / "kwire"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import os\nos.kill(os.getpid(), 2)\nos.write(2, b'went on\\n')\nos._exit(0)"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", f'{before}exec "$@"', "sh", sys.executable, ROOT / "bin" / "kwire"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == after


@pytest.mark.parametrize(
    "module",
    ["argparse", "server.__main__", "server.arguments", "server.cli.topics", "kwire.codec"],
)
def test_ctrl_c_while_modules_are_imported_leaves_no_traceback(module: str) -> None:
    program = (
        "import os, signal, sys\n"
        "import server.entry\n"
        "class Interrupting:\n"
        "    def find_spec(name, *_):\n"
        f"        if name == {module!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        f"sys.modules.pop({module!r}, None)\n"
        "sys.meta_path.insert(0, Interrupting)\n"
        "sys.exit(server.entry.command())\n"
    )
    command = [sys.executable, "-c", program, "topics", "--bootstrap", "127.0.0.1:1", "list"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_after_a_command_leaves_no_traceback() -> None:
    program = (
        "import atexit, os, signal, sys, time\n"
        "import server.entry\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), time.sleep(60)))\n"
        "sys.exit(server.entry.command())\n"
    )
    command = [sys.executable, "-c", program, "completion", "fish"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert (done.returncode, done.stderr) == (130, "")
    assert "complete -c kwire" in done.stdout


def test_ctrl_c_that_is_ignored_stays_ignored() -> None:
    """As for a script's command in the background."""
    program = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "import server.entry\n"
        "server.entry.command()\n"
        "assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], cwd=ROOT, timeout=60)
    assert done.returncode == 0
