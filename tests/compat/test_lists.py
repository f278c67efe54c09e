"""The tests, versions and files in the folders of compat/ agree with the suite and the matrix."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from compat import matrix

from ..docs.test_pages import LINK, is_dead, missing_files
from ..support.broker_process import REPOSITORY

by_client = pytest.mark.parametrize("client", matrix.CLIENTS)
AGAIN = "python -m compat.matrix {} writes it anew"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Give client -> test -> row of the matrix, of all tests with the marker `compat`."""
    path = tmp_path_factory.mktemp("cells") / "cells.json"
    unset = {"KWIRE_COMPAT_CLIENT", "KWIRE_COMPAT_RESULTS", "PYTEST_ADDOPTS"}
    environment = {key: value for key, value in os.environ.items() if key not in unset}
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"),
            *("-p", "tests.compat.cells", "tests/e2e"),
        ],
        cwd=REPOSITORY,
        env=environment | {"KWIRE_COMPAT_CELLS": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    found: dict[str, dict[str, str]] = {client: {} for client in matrix.CLIENTS}
    for client, _, feature, test in json.loads(path.read_text()):
        found[client][test] = matrix.feature_of(feature, test)
    return found


def text_of(client: str, name: str) -> str:
    return (matrix.ROOM / client / name).read_text()


def versions_of(client: str) -> list[str]:
    """The client versions in run.sh, and no other numbers."""
    return re.findall(r"(?<![\d.-])\d+\.\d+\.\d+(?![\d.-])", text_of(client, "run.sh"))


@by_client
def test_folder_is_whole(client: str) -> None:
    """README.md, FINDINGS.md, tests.allow, and a script that can be run."""
    for name in ("README.md", "FINDINGS.md", "tests.allow"):
        assert text_of(client, name).strip(), name
    assert os.access(matrix.ROOM / client / "run.sh", os.X_OK)


@by_client
def test_page_names_every_version_that_is_run(client: str) -> None:
    versions = versions_of(client)
    assert versions
    assert [version for version in versions if version not in text_of(client, "README.md")] == []


@pytest.mark.parametrize(
    "page",
    sorted([*matrix.ROOM.glob("*.md"), *matrix.ROOM.glob("[a-z]*/*.md")]),
    ids=lambda page: str(page.relative_to(matrix.ROOM)),
)
def test_what_pages_lead_to_and_name_is_there(page: Path) -> None:
    text = page.read_text()
    assert [link for link in LINK.findall(text) if is_dead(link, page)] == []
    assert missing_files(LINK.sub("", text)) == []


@by_client
def test_listed_tests_exist(client: str, cells: dict[str, dict[str, str]]) -> None:
    gone = sorted(matrix.allowed_tests(client) - cells[client].keys())
    assert gone == [], "renamed or removed: change tests.allow"


@by_client
def test_each_test_is_listed_or_explained(client: str, cells: dict[str, dict[str, str]]) -> None:
    findings = text_of(client, "FINDINGS.md")
    missing = [
        test
        for test in sorted(cells[client].keys() - matrix.allowed_tests(client))
        if not matrix.names(findings, test)
    ]
    assert missing == [], AGAIN.format(client)


@by_client
def test_list_is_in_order(client: str) -> None:
    lines = text_of(client, "tests.allow").splitlines()
    assert lines == sorted(set(lines))


@by_client
def test_table_has_every_feature_and_the_pinned_version(
    client: str, cells: dict[str, dict[str, str]]
) -> None:
    tables = matrix.sections((matrix.ROOM / "MATRIX.md").read_text())
    rows = [line.split(" | ") for line in tables[matrix.TITLES[client]].splitlines()]
    shown = {row[0].removeprefix("| ") for row in rows[2:]}
    assert shown == set(cells[client].values()), AGAIN.format(client)
    header = tables[matrix.TITLES[client]].splitlines()[0]
    assert re.findall(r"\d+\.\d+\.\d+", header)[0] in versions_of(client)


def test_tools_are_named_by_their_scripts(cells: dict[str, dict[str, str]]) -> None:
    tools = cells["java-tools"].values()
    rest = {row for row in tools if not row.startswith(("kafka-", "security: "))}
    assert rest == {"client metrics", "transactions"}, "TOOLS of compat/matrix.py lacks a test"


def test_no_test_of_another_client_is_forgotten(cells: dict[str, dict[str, str]]) -> None:
    assert set(cells) == set(matrix.CLIENTS) == set(matrix.TITLES)
    folders = {path.parent.name for path in Path(matrix.ROOM).glob("*/run.sh")}
    assert folders == set(matrix.CLIENTS)
