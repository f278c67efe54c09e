"""A pytest plugin that writes which cell of the matrix each collected test belongs to.

python -m pytest --collect-only -p tests.compat.cells; KWIRE_COMPAT_CELLS names the file to write:
a list of [client, version or "", feature, test].
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write the cells."""
    cells = []
    for item in session.items:
        for marker in item.iter_markers("compat"):
            client, _, version = marker.args[0].partition(" ")
            cells.append([client, version, marker.args[1], item.nodeid])
    Path(os.environ["KWIRE_COMPAT_CELLS"]).write_text(json.dumps(cells))
