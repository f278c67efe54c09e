"""The wheel in a separate environment: its claims, and users' files stay untouched."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.conftest import pip
from tests.packaging.release import wheel_problems

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_wheel_has_what_it_needs_and_claims_only_its_names(wheel: Path) -> None:
    assert wheel_problems(wheel) == []


def test_native_module_is_left_out_of_a_checkout_without_a_compiler(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an editable installation builds it."""
    monkeypatch.setenv("CC", "/there/is/none")
    run([sys.executable, "setup.py", "build_ext", "--inplace"], clone)
    assert not list(clone.glob("kwire/*.so"))


def test_wheel_without_a_compiler_is_one_for_all_platforms(
    clone: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "/there/is/none")
    folder = tmp_path_factory.mktemp("pure")
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(clone))
    (built,) = folder.glob("*.whl")
    assert built.name.endswith("-py3-none-any.whl")
    assert wheel_problems(built) == []


def test_metadata_of_the_wheel_names_licence_and_authors(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata.get_all("License-File") == ["LICENSE"]
    assert metadata["Author"] == "The kwire authors"


def test_installed_modules_are_all_importable(environment: Path, users_folder: Path) -> None:
    """Also shows that no module below `server` imports another by its name in a checkout."""
    program = (
        "import importlib, pkgutil, sys, kwire\n"
        "names = [m.name for m in pkgutil.walk_packages(kwire.__path__, 'kwire.')]\n"
        "for name in names:\n"
        "    name.endswith('__main__') or importlib.import_module(name)\n"
        "assert kwire.__file__.startswith(sys.prefix), kwire.__file__\n"
        "assert not [m for m in sys.modules if m.split('.')[0] in ('server', 'compat', 'tests')]\n"
        "print(len(names))\n"
    )
    found = run([str(environment / "bin" / "python"), "-P", "-c", program], users_folder)
    assert int(found) > 100


def test_module_form_works_in_a_folder_with_a_users_own_modules_if_python_is_told(
    environment: Path, users_folder: Path
) -> None:
    python = str(environment / "bin" / "python")
    assert "serve" in run([python, "-P", "-m", "kwire.server", "--help"], users_folder)


def run(command: list[str], folder: Path) -> str:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
