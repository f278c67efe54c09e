"""Records a client's history: one file per client, each line written at once."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Recorder:
    """The history of one process (`checker.history` has the format)."""

    def __init__(self, directory: Path, process: str) -> None:
        self.process = process
        self.path = directory / f"{process}.jsonl"
        self._file = self.path.open("a", buffering=1)

    def note(self, kind: str, op: str, value: list[Any], **more: Any) -> None:
        """Write one line; fields that are None are left out."""
        line = {
            "time": time.monotonic_ns(),
            "process": self.process,
            "op": op,
            "type": kind,
            "value": value,
            **{name: content for name, content in more.items() if content is not None},
        }
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def close(self) -> None:
        """End the file."""
        self._file.close()
