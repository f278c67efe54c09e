"""Completion in shells."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from server.__main__ import COMMANDS, make_parser
from server.cli.completion import bash_script, fish_script, places, zsh_script


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "kwire.bash"
    path.write_text(bash_script(list(places(COMMANDS, make_parser))))
    return path


def proposed(script: Path, *words: str) -> list[str]:
    """bash's proposals for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    done = subprocess.run(
        ["bash", "-c", f"source {script} && declare -F _kwire > /dev/null || exit 1;"
         f" COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
         ' _kwire; printf "%s\\n" "${COMPREPLY[@]}"'],
        capture_output=True,
        text=True,
        cwd=script.parent,
    )  # fmt: skip
    # An error inside the script would otherwise look as if it had nothing to propose.
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (("kwire", ""), set(COMMANDS)),
        (("kwire", "gr"), {"groups"}),
        (("kwire", "groups", ""), {"list", "describe", "reset", "--bootstrap", "--output"}),
        (("kwire", "groups", "--output", ""), {"table", "json"}),
        (("kwire", "groups", "--output", "json", "reset", "--to-"), {"--to-earliest", "--to-offset"}),
        (("kwire", "produce", "t", "-z", ""), {"gzip", "zstd"}),
        (("kwire", "serve", "--config", "kw"), {"kwire.bash"}),
        (("kwire", "cluster", "h"), {"health"}),
        (("kwire", "completion", ""), {"bash", "zsh", "fish"}),
    ],
)  # fmt: skip
def test_bash_proposes_what_fits(script: Path, words: tuple[str, ...], some: set[str]) -> None:
    found = set(proposed(script, *words))
    assert some <= found
    assert all(word.startswith(words[-1]) for word in found)


def test_nothing_is_proposed_for_a_value_that_only_the_user_knows(script: Path) -> None:
    assert "--bootstrap" in proposed(script, "kwire", "groups", "")
    assert proposed(script, "kwire", "groups", "--bootstrap", "") == []
    assert "list" in proposed(script, "kwire", "groups", "--bootstrap", "localhost:9092", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_can_be_parsed_by_its_shell(shell: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    make = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}[shell]
    path = tmp_path / "script"
    path.write_text(make(list(places(COMMANDS, make_parser))))
    subprocess.run([shell, "-n", str(path)], check=True)


def test_fish_gets_every_command_and_its_help() -> None:
    lines = fish_script(list(places(COMMANDS, make_parser))).splitlines()
    for name, (_, summary) in COMMANDS.items():
        escaped = summary.replace("'", "\\'")
        assert f"complete -c kwire -n '__fish_use_subcommand' -a {name} -d '{escaped}'" in lines
