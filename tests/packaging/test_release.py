"""The trees that `make release` refuses to build; `test_wheel.py` checks its results."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tests.packaging.release import ROOT, release_problems, wheel_problems


def tree(folder: Path, version: str, latest: str) -> Path:
    (folder / "docs" / "changes").mkdir(parents=True)
    (folder / "docs" / "changes" / "README.md").write_text("# Change notes\n")
    (folder / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(f"# Changelog\n\n## {latest}\n\nWords.\n\n## 0.0.1\n")
    return folder


def test_changelog_describes_the_version_of_this_tree() -> None:
    assert [text for text in release_problems(ROOT) if "CHANGELOG.md describes" in text] == []


def test_tree_whose_versions_agree_can_be_released(tmp_path: Path) -> None:
    assert release_problems(tree(tmp_path, "0.2.0", "0.2.0")) == []


def test_version_without_a_section_in_the_changelog_is_refused(tmp_path: Path) -> None:
    assert release_problems(tree(tmp_path, "0.2.0", "0.1.0")) == [
        "pyproject.toml says 0.2.0, CHANGELOG.md describes 0.1.0 as the latest release"
    ]


def test_change_note_that_is_left_is_refused(tmp_path: Path) -> None:
    tree(tmp_path, "0.2.0", "0.2.0")
    (tmp_path / "docs" / "changes" / "tls.added.md").write_text("TLS works.\n")
    assert release_problems(tmp_path) == ["docs/changes: not yet in CHANGELOG.md: tls.added.md"]


@pytest.mark.parametrize(
    ("name", "has_them", "fits"),
    [
        ("kwire-1-py3-none-any.whl", 0, True),
        ("kwire-1-py3-none-any.whl", 2, False),
        ("kwire-1-cp311-cp311-linux_x86_64.whl", 2, True),
        ("kwire-1-cp311-cp311-linux_x86_64.whl", 0, False),
        ("kwire-1-cp311-cp311-linux_x86_64.whl", 1, False),
    ],
)
def test_wheel_says_by_its_name_whether_it_has_the_native_modules(
    tmp_path: Path, name: str, has_them: int, fits: bool
) -> None:
    wheel = tmp_path / name
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kwire/_native.pyi", "")
        for folder in ("kwire", "kwire/server/native")[:has_them]:
            archive.writestr(f"{folder}/_native.cpython-311-x86_64-linux-gnu.so", "")
    told = "the wheel's name and its native modules do not fit together"
    assert (told in wheel_problems(wheel)) is not fits


def test_wheel_with_a_foreign_name_and_without_a_licence_is_named(tmp_path: Path) -> None:
    wheel = tmp_path / "kwire-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("server/__init__.py", "kwire/tests/test_a.py", "kwire/py.typed"):
            archive.writestr(name, "")
    assert wheel_problems(wheel) == [
        "the wheel claims server",
        "the wheel lacks kwire/server/py.typed",
        "the wheel lacks kwire/testing/py.typed",
        "the wheel lacks kwire/pipeline/log4j2.properties",
        "the wheel lacks LICENSE",
        "the wheel installs [], and not only the command kwire",
        "the wheel carries kwire/tests/test_a.py",
    ]
