"""`make golden`: kwire against recorded bytes. usage: python -m tests.golden [--if-present] [FOLDER]

FOLDER has the layout of ../shared/protocol: vectors/, records/, logdir/. Each part prints what failed
and how many passed; the exit code is 0 only if all did.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

PARTS = ("vectors", "records", "logdir")


def main(folder: str, if_present: bool = False) -> int:
    """Run every part and return the exit code."""
    directory = Path(folder)
    missing = [part for part in PARTS if not (directory / part).is_dir()]
    if len(missing) == len(PARTS) and if_present:
        print(f"golden: skipped, {directory} has none of {', '.join(PARTS)}")
        return 0
    if missing:
        print(f"{directory}: no {', '.join(missing)} there; name a folder with GOLDEN=DIR")
        return 2
    counts = {part: import_module(f"tests.golden.{part}").run(directory) for part in PARTS}
    for part, (passed, failed) in counts.items():
        print(f"golden {part}: {passed} of {passed + failed} passed")
    return 1 if any(failed for _, failed in counts.values()) else 0


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--if-present"]
    sys.exit(main(words[0] if words else "../shared/protocol", "--if-present" in sys.argv))
