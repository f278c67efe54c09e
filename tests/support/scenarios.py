"""`python -m tests.support.scenarios`: how many scenarios of other projects' tests are covered here, and why the others are not."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1]


def summary(listed: Mapping[str, Any]) -> list[str]:
    """The lines about one scenarios.toml: for each source how many are covered, and how many are left out for each reason."""
    lines = []
    for source, scenarios in listed.items():
        lines.append(f"{source}: {len(scenarios['covered'])} of {scenarios['count']}")
        for reason, names in scenarios.get("left_out", {}).items():
            lines.append(f"    {len(names)} left out: {reason}")
    return lines


def main() -> None:
    for path in sorted(TESTS.glob("**/scenarios.toml")):
        print(path.relative_to(TESTS.parent))
        print("\n".join(summary(tomllib.loads(path.read_text()))))


if __name__ == "__main__":
    main()
