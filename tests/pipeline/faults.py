"""The table of faults in docs/pipeline/faults.md: each row was observed by a test.

KWIRE_RECORD=1 writes the rows of the tests that run into the page.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from kwire.pipeline.problems import Problem, explain

from ..support.broker_process import REPOSITORY

PAGE = REPOSITORY / "docs" / "pipeline" / "faults.md"
RECORD = os.environ.get("KWIRE_RECORD", "") not in ("", "0")


def message_of(error: BaseException) -> str:
    """The error message of `kwire pipeline`, without its name in front."""
    message = str(error) if isinstance(error, Problem) else explain(error)
    assert message is not None, repr(error)
    return message


def check_row(job: str, fault: str, message: str, again: str, names: dict[str, str]) -> None:
    """Check that the page has this row below the job's heading: fault, message, effect of the same command.

    `names` maps values that differ from run to run (a folder, an address, a topic) to their placeholders.
    """
    for name in sorted(names, key=len, reverse=True):
        message = message.replace(name, names[name])
    message = re.sub(r"\n+", "; ", message.strip())
    row = f"| {fault} | `{message}` | {again} |"
    text = PAGE.read_text()
    before, heading, rest = text.partition(f"## {job}\n")
    assert heading, f"{PAGE} has no heading for {job}"
    section, following, after = rest.partition("\n## ")
    if RECORD:
        lines = [line for line in section.splitlines() if not line.startswith(f"| {fault} |")]
        at = next(n for n, line in enumerate(lines) if line.startswith("| ---")) + 1
        rows = sorted([row, *(line for line in lines[at:] if line.startswith("|"))])
        rest = [line for line in lines[at:] if not line.startswith("|")]
        section = "\n".join([*lines[:at], *rows, *rest]) + "\n"
        PAGE.write_text(f"{before}{heading}{section}{following}{after}")
        return
    rows_there = [line for line in section.splitlines() if line.startswith(f"| {fault} |")]
    assert rows_there == [row]


def names_of(path: Path, bootstrap: str, topic: str) -> dict[str, str]:
    """The usual names: `DIR`, `HOST:PORT`, `orders`."""
    return {str(path): "DIR", bootstrap: "HOST:PORT", topic: "orders"}
