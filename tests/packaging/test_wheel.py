"""The wheel in an environment of its own: what it claims, and that a user's files are left alone."""

from __future__ import annotations

import email
import os
import signal
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging.release import wheel_problems

ROOT = Path(__file__).parents[2]
#: Modules that many people have in the folder they work in. Importing one of ours by their name would find these.
USERS_OWN = ("server", "compat", "tests", "bench", "config", "handlers", "messages")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # A copy, because a build leaves its traces beside the sources.
    source = tmp_path_factory.mktemp("source")
    for name in ("kwire", "server", "pipeline", "pyproject.toml", "README.md", "LICENSE"):
        subprocess.run(["cp", "-r", str(ROOT / name), str(source)], check=True)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(source))
    (built,) = folder.glob("kwire-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel; what kwire needs is borrowed from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    pip("--python", str(folder / "bin" / "python"), "install", "--no-deps", str(wheel))
    (ours,) = folder.glob("lib/python*/site-packages")
    theirs = next(path for path in sys.path if path.endswith("site-packages"))
    # Behind our own, and without the editable kwire that their .pth files would bring.
    (ours / "borrowed.pth").write_text(theirs + "\n")
    return folder


@pytest.fixture
def users_folder(tmp_path: Path) -> Path:
    for name in USERS_OWN:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a user module was imported')\n")
    return tmp_path


def test_wheel_has_what_it_needs_and_claims_only_its_names(wheel: Path) -> None:
    assert wheel_problems(wheel) == []


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
    found = run([str(environment / "bin" / "python"), "-c", program], users_folder)
    assert int(found) > 100


def test_serve_works_in_a_folder_with_a_users_own_modules(
    environment: Path, users_folder: Path
) -> None:
    command = [str(environment / "bin" / "kwire"), "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, cwd=users_folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        assert broker.stderr is not None
        try:
            line = broker.stdout.readline()
            assert line.startswith("kwire ready 127.0.0.1:"), line or broker.stderr.read()
            broker.send_signal(signal.SIGTERM)
            assert broker.wait(timeout=30) == 0
        finally:
            broker.kill()
    assert (users_folder / "kwire-data").is_dir()


def test_module_form_works_in_a_folder_with_a_users_own_modules(
    environment: Path, users_folder: Path
) -> None:
    python = str(environment / "bin" / "python")
    assert "serve" in run([python, "-m", "kwire.server", "--help"], users_folder)


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True)


def run(command: list[str], folder: Path) -> str:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        command, cwd=folder, env=plain, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
