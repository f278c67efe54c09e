"""`make golden`: kwire against recorded bytes. usage: python -m tests.golden [FOLDER]

FOLDER has the layout of `tests/golden/data`, which is taken without it: vectors/, records/, logdir/. Each part
prints what failed and how many passed; the exit code is 0 only if all did. `make test` runs the same by pytest.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from .recorded import DATA

PARTS = ("vectors", "records", "logdir")


def main(directory: Path) -> int:
    """Run every part and return the exit code."""
    missing = [part for part in PARTS if not (directory / part).is_dir()]
    if missing:
        print(f"{directory}: no {', '.join(missing)} there; name a folder with GOLDEN=DIR")
        return 2
    counts = {part: import_module(f"tests.golden.{part}").run(directory) for part in PARTS}
    for part, (passed, failed) in counts.items():
        print(f"golden {part}: {passed} of {passed + failed} passed")
    return 1 if any(failed for _, failed in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else DATA))
