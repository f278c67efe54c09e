"""A version that Apache Kafka adds to Produce or Fetch, before the plain forms know it: in a copy of the sources, in which it
is served as CONTRIBUTING.md says, the comparisons of the forms pass, and the forms leave it to the codec.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kwire import layouts
from kwire.codec import encode
from kwire.messages.fetch import FetchRequest, FetchResponse
from kwire.messages.produce import ProduceRequest
from server import native
from server.handlers import fetch_plain, produce_plain
from server.handlers.fetch import fetch
from server.handlers.produce import produce
from server.replication.fetch_session import FetchedPartition
from tests.support.forms import form

ROOT = Path(__file__).parents[2]
COPIED = ("kwire", "server", "testing", "tests/fuzz", "tests/handlers", "tests/support")

#: In which file of the copy what is replaced by what, and how often. A plain request for Produce stays as it was.
NEW_PRODUCE = (
    ("kwire/messages/produce.py", '"0-13", flexible', '"0-14", flexible', 2),
    (
        "kwire/messages/produce.py",
        "    base_offset: int = field(Int64)\n",
        '    base_offset: int = field(Int64)\n    added: int = field(Int32, "14+", default=14)\n',
        1,
    ),
    ("server/handlers/produce.py", 'versions="0-13"', 'versions="0-14"', 1),
    ("server/handlers/ceilings.py", "0: (0, 13),  # Produce", "0: (0, 14),  # Produce", 1),
)
NEW_FETCH = (
    ("kwire/messages/fetch.py", '"0-18", flexible', '"0-19", flexible', 2),
    (
        "kwire/messages/fetch.py",
        "    partition: int = field(Int32)\n",
        '    partition: int = field(Int32)\n    added: int = field(Int32, "19+", default=19)\n',
        1,
    ),
    (
        "kwire/messages/fetch.py",
        "    partition_index: int = field(Int32)\n",
        '    partition_index: int = field(Int32)\n    added: int = field(Int32, "19+", default=19)\n',
        1,
    ),
    ("server/handlers/fetch.py", 'versions="0-18"', 'versions="0-19"', 1),
    ("server/handlers/ceilings.py", "1: (4, 18),  # Fetch", "1: (4, 19),  # Fetch", 1),
)
#: Fewer requests are compared.
SHORTER = (
    ("tests/handlers/test_produce_plain.py", "else 2_500", "else 500", 1),
    ("tests/handlers/test_fetch_plain.py", "else 600", "else 300", 1),
)
#: The newest version that the forms state.
STATED = {
    "produce": ("server/handlers/produce_plain.py", "NEWEST = 13", "NEWEST = 14", 1),
    "fetch": ("server/handlers/fetch_plain.py", "NEWEST = 18", "NEWEST = 19", 1),
}


def copy_of_sources(folder: Path) -> Path:
    for name in COPIED:
        shutil.copytree(ROOT / name, folder / name)
    for name in ("pyproject.toml", "tests/__init__.py", "tests/conftest.py"):
        shutil.copy2(ROOT / name, folder / name)
    return folder


def change(folder: Path, path: str, old: str, new: str, times: int) -> None:
    text = (folder / path).read_text()
    assert text.count(old) == times, (path, old)
    (folder / path).write_text(text.replace(old, new))


def run_in(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *args], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "newest"), [("produce", NEW_PRODUCE, 14), ("fetch", NEW_FETCH, 19)]
)
def test_version_that_the_forms_do_not_know_is_answered_by_the_codec(
    tmp_path: Path, name: str, changes: tuple[tuple[str, str, str, int], ...], newest: int
) -> None:
    folder = copy_of_sources(tmp_path)
    for each in (*changes, *SHORTER):
        change(folder, *each)
    served = f"from server.handlers.{name} import {name}; print({name})"
    assert run_in(folder, "-c", served).stdout.endswith(f"-{newest}>\n")

    compared = run_in(
        folder, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist",
        f"tests/handlers/test_{name}_plain.py", "-k", "alike or damaged or many",
    )  # fmt: skip
    assert compared.returncode == 0, compared.stdout[-3000:]
    assert re.search(r"\n\d+ passed", compared.stdout)

    # Whoever states the version without looking at its fields is told at the start.
    change(folder, *STATED[name])
    started = run_in(folder, "-c", served)
    assert started.returncode == 1
    assert "changes in the versions" in started.stderr


def test_forms_know_all_versions_that_are_served() -> None:
    """To be changed together: what a form does not know is answered more slowly."""
    assert produce.max_version == produce_plain.NEWEST
    assert fetch.max_version == fetch_plain.NEWEST
    if native.LAYOUTS is not None:
        newest = {name: version for name, (_, version) in native.LAYOUTS.items()}
        assert newest == {
            "ProduceRequest": produce.max_version,
            "ProduceResponse": produce.max_version,
            "FetchRequest": fetch.max_version,
            "FetchResponse": fetch.max_version,
        }


def test_next_version_is_left_alone_by_each_form() -> None:
    newest = fetch.max_version
    body = encode(FetchRequest(session_epoch=-1), newest)
    assert fetch_plain.write_rows(newest, []) is not None
    assert fetch_plain.write_rows(newest + 1, []) is None
    with form("native"):
        assert native.take_fetch is not None
        assert native.write_rows is not None
        assert native.take_fetch(body, 0, newest, {}, FetchedPartition) is not None
        assert native.take_fetch(body, 0, newest + 1, {}, FetchedPartition) is None
        assert native.write_rows(newest, []) is not None
        assert native.write_rows(newest + 1, []) is None


@pytest.mark.parametrize(
    ("since", "newest"),
    [((9,), 13), ((9, 13), 14), ((8, 13), 13), ((9, 12, 13), 13)],
)
def test_statement_that_is_not_as_declared_ends_the_start(
    since: tuple[int, ...], newest: int
) -> None:
    layouts.check_layouts(ProduceRequest, (9, 13), 13)
    layouts.check_layouts(FetchResponse, (7, 11, 12, 13), 16)
    layouts.check_layouts(ProduceRequest, (10, 13), 13)  # a form may begin later
    with pytest.raises(ValueError, match="changes in the versions"):
        layouts.check_layouts(ProduceRequest, since, newest)
