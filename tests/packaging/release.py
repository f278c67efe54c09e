"""`make release`: builds sdist and wheels from the last commit, and checks what was built.

What is built comes from `git archive`, so that nothing which lies in the working tree gets in. The wheels are built from
the sdist: one for this platform and Python with the native module, if there is a compiler, and one without it for
all others. The sdist is unpacked and its unit layer runs in a new environment.
usage: python -m tests.packaging.release [--to FOLDER] [--without-tests]
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
UNIT = "not (e2e or zookeeper or jvm or spark or slow)"
TOPS = {"kwire", "pyspark_kwire"}
NEEDED = (
    "kwire/py.typed",
    "kwire/server/py.typed",
    "kwire/testing/py.typed",
    "kwire/pipeline/log4j2.properties",
)
#: A wheel for all platforms lacks them, and any other has both.
NATIVE = re.compile(r"(kwire|kwire/server/native)/_native\.[^/]*\.(so|pyd)")
RELEASE = re.compile(r"^## (\S+)", re.MULTILINE)


def release_problems(root: Path) -> list[str]:
    """Obstacles to a release in a source tree: version, changelog, change notes."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    described = RELEASE.search((root / "CHANGELOG.md").read_text())
    problems = []
    if described is None or described[1] != version:
        found = described[1] if described else "nothing"
        problems.append(
            f"pyproject.toml says {version}, CHANGELOG.md describes {found} as the latest release"
        )
    notes = sorted(p.name for p in (root / "docs" / "changes").glob("*.md"))
    left = [name for name in notes if name != "README.md"]
    if left:
        problems.append(f"docs/changes: not yet in CHANGELOG.md: {', '.join(left)}")
    return problems


def wheel_problems(wheel: Path) -> list[str]:
    """Errors in the content of a wheel."""
    names = zipfile.ZipFile(wheel).namelist()
    scripts = [name for name in names if ".data/" in name]
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name} - {
        name.split("/")[0] for name in scripts
    }
    problems = [f"the wheel claims {name}" for name in sorted(tops - TOPS)]
    problems += [f"the wheel lacks {name}" for name in NEEDED if name not in names]
    if not any(name.endswith(".dist-info/licenses/LICENSE") for name in names):
        problems.append("the wheel lacks LICENSE")
    if [name.partition(".data/")[2] for name in scripts] != ["scripts/kwire"]:
        problems.append(f"the wheel installs {scripts}, and not only the command kwire")
    problems += [f"the wheel carries {name}" for name in names if "/tests/" in name]
    of_platform = not wheel.name.endswith("-none-any.whl")
    if sum(NATIVE.fullmatch(name) is not None for name in names) != 2 * of_platform:
        problems.append("the wheel's name and its native modules do not fit together")
    return problems


def run(*command: str | Path, folder: Path, **variables: str) -> None:
    """Run a command; its failure ends the release."""
    print("$", *(f"{name}={value}" for name, value in variables.items()), *command, flush=True)
    environment = {**os.environ, **variables}
    subprocess.run([str(word) for word in command], cwd=folder, check=True, env=environment)


def unpacked(archive: Path, folder: Path) -> Path:
    """Unpack an sdist; return the folder in it."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def build(source: Path, target: Path) -> tuple[Path, list[Path]]:
    """Build everything from a source tree; return (sdist, wheels)."""
    for pure in ("0", "1"):
        run(sys.executable, "-m", "build", "--outdir", target, folder=source, KWIRE_PURE=pure)
    (sdist,) = target.glob("*.tar.gz")
    return sdist, sorted(target.glob("*.whl"))


def run_tests_of(sdist: Path, folder: Path) -> None:
    """Run the sdist's unit layer in a separate environment."""
    source = unpacked(sdist, folder / "sdist")
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"
    # As in `make test`, so that tests import `server` as well as `kwire.server`.
    run(python, "-m", "pip", "install", "--quiet", "--editable", ".[dev]", folder=source)
    run(python, "-m", "pytest", "-q", "-m", UNIT, folder=source)


def main() -> int:
    """Build and check; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.packaging.release")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder for the files")
    parser.add_argument(
        "--without-tests", action="store_true", help="do not run the unit tests of the sdist"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kwire-release-") as name:
        folder = Path(name)
        committed = folder / "source.tar"
        run("git", "archive", "--format=tar", f"--output={committed}", "HEAD", folder=ROOT)
        source = folder / "source"
        with tarfile.open(committed) as tar:
            tar.extractall(source, filter="data")
        problems = release_problems(source)
        if not problems:
            sdist, wheels = build(source, folder / "dist")
            run(sys.executable, "-m", "twine", "check", "--strict", sdist, *wheels, folder=folder)
            problems = [problem for wheel in wheels for problem in wheel_problems(wheel)]
        if problems:
            print(*problems, sep="\n", file=sys.stderr)
            return 1
        if not options.without_tests:
            run_tests_of(sdist, folder)
        options.to.mkdir(parents=True, exist_ok=True)
        for file in (sdist, *wheels):
            shutil.copy(file, options.to)
            print(options.to / file.name)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as failed:
        sys.exit(f"not released: {' '.join(failed.cmd)} ended with {failed.returncode}")
