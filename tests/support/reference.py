"""Where the reference data made from Apache Kafka lies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "shared" / "protocol"


def reference_folder() -> Path:
    """The folder, or skip the test."""
    if not FOLDER.is_dir():
        pytest.skip(f"no reference data in {FOLDER}")
    return FOLDER


def reference(name: str) -> Any:
    """One of its JSON files, or skip the test."""
    return json.loads((reference_folder() / name).read_text(encoding="utf-8"))
