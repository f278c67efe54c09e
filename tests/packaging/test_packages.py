"""The content of an installed kwire, and files that it does not touch."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOPS = {
    "kwire": "kwire",
    "server": "kwire.server",
    "pipeline": "kwire.pipeline",
    "testing": "kwire.testing",
}


def packages_on_disk() -> set[str]:
    found = set()
    for top, name in TOPS.items():
        for marker in (ROOT / top).rglob("__init__.py"):
            below = marker.parent.relative_to(ROOT / top)
            # Spark finds sources in modules at the top that are named `pyspark_*`.
            lookup = below.name.startswith("pyspark_")
            found.add(below.name if lookup else ".".join([name, *below.parts]))
    return found


def test_every_package_directory_is_listed() -> None:
    """An explicit list, because setuptools cannot find packages below a mapped name."""
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert sorted(setuptools["packages"]) == sorted(packages_on_disk())


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for top in TOPS for path in (ROOT / top).rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
