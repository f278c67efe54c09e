"""The command itself: help, versions, imported modules."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kwire.testing import Broker
from server.__main__ import COMMANDS, columns, main, make_parser
from server.cli import pipeline
from server.event_loop import form_and_why

ROOT = Path(__file__).parents[2]


def loaded_by(*words: str) -> set[str]:
    program = (
        "import sys\n"
        "from server.__main__ import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "except SystemExit:\n    pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_help_loads_no_command() -> None:
    assert not {name for name in loaded_by("--help") if name.startswith("server.c")}


def test_client_command_loads_only_what_it_needs(kafka: Broker) -> None:
    kafka.topic("t")
    kafka.produce("t", "a")
    loaded = loaded_by("consume", "--bootstrap", kafka.bootstrap_servers, "t", "-b", "-e")
    assert "server.client.reader" in loaded
    unwanted = {"asyncio", "difflib", "kafka", "logging", "server.config", "ssl", "tqdm"}
    assert not unwanted & loaded


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_broker_without_tls_loads_nothing_for_encryption(
    loop: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    monkeypatch.setenv("KWIRE_LOOP", loop)
    unusable = tmp_path / "file"
    unusable.touch()
    loaded = loaded_by("serve", "--listen", "127.0.0.1:0", "--data-dir", str(unusable))
    assert {"asyncio", "server.broker"} <= loaded
    assert ("uvloop.loop" in loaded) == (loop == "uvloop")
    unwanted = {
        "ssl",
        "_ssl",
        "hashlib",
        "cryptography",
        "h11",
        "prometheus_client",
        "shutil",
        "lzma",
    }
    assert not (unwanted | {"server.security.jaas"}) & loaded


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser(command).parse_args([command, "--help"])
    assert ended.value.code == 0
    assert f"usage: kwire {command}" in capsys.readouterr().out


def test_no_command_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_unknown_option_shows_what_the_command_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "server.properties"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "--config FILE" in said
    assert said.endswith("kwire serve: error: unrecognized arguments: server.properties\n")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith("kwire ")
    assert said.endswith(f", {form_and_why()})\n")


@pytest.mark.parametrize("given", [None, "57", "0", "-3", "wide"])
def test_width_of_the_terminal_is_what_shutil_says(
    given: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is None:
        monkeypatch.delenv("COLUMNS", raising=False)
    else:
        monkeypatch.setenv("COLUMNS", given)
    assert columns() == shutil.get_terminal_size().columns


def test_ctrl_c_after_the_last_word_of_a_job_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It then ends the process itself, and not one of Python's own steps at the end."""
    monkeypatch.setattr(
        pipeline, "import_module", lambda _: SimpleNamespace(main=lambda words: len(words))
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main(["pipeline", "audit"]) == 1
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGINT, before)
