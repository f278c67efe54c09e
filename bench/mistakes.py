"""Plant mistakes in kwire, one at a time, and see which of them the tests find. python -m bench.mistakes --count 10

Each mistake changes one place: a comparison is weakened or reversed, a number is off by one, a condition is negated, or a
statement is left out. They are drawn by a seed, evenly over the rooms (the packages of the product), so that the same mistakes
are planted again: `--tests REV` takes the folder tests/ of another commit, to compare two versions of the tests.

The product of the last commit is copied. For each mistake, three sets of tests run until one fails: the files that import the
changed module, then the folder that mirrors its room, then (with `--wide`) all others. `--marks` says which tests count; without
it, those that need no broker process and no Java. A test that fails is run once more without the mistake, and only counts if it
passes. A set that exceeds `--timeout` seconds counts as "found: the tests hang", as it would in CI.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PRODUCT = ("kwire", "server", "pipeline", "testing")
QUICK = "not (e2e or zookeeper or jvm or spark or slow)"

COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
#: Calls whose absence changes nothing that kwire promises.
REPORTS = re.compile(r"^(log|_log|logger|_logger|logging|warnings)\.|^print\(")


@dataclass(frozen=True)
class Mistake:
    """One change of a file. Shape: start and end are offsets in its text, in characters."""

    path: str
    line: int
    kind: str
    start: int
    end: int
    before: str
    after: str

    def planted_in(self, text: str) -> str:
        """The text with the mistake."""
        assert text[self.start : self.end] == self.before
        return text[: self.start] + self.after + text[self.end :]

    def __str__(self) -> str:
        """As in the list of results."""
        shown = " ".join(self.before.split())
        shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
        return f"{self.path}:{self.line} {self.kind}: {shown}  ->  {self.after[:60]}"


class Places(ast.NodeVisitor):
    """Collects the places of a file where a mistake can be planted; annotations and docstrings are none."""

    def __init__(self, path: str, text: str) -> None:
        self.found: list[Mistake] = []
        self._path, self._text = path, text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._rows = text.splitlines()
        self.visit(ast.parse(text))

    def _offset(self, line: int, column: int) -> int:
        """From a line and a column, which `ast` counts in bytes."""
        return self._lines[line - 1] + len(self._rows[line - 1].encode()[:column].decode())

    def _place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return (
            self._offset(node.lineno, node.col_offset),
            self._offset(node.end_lineno, node.end_col_offset),
        )

    def _source(self, node: ast.expr) -> str:
        start, end = self._place(node)
        return self._text[start:end]

    def _add(self, node: ast.expr | ast.stmt, kind: str, after: str) -> None:
        start, end = self._place(node)
        before = self._text[start:end]
        self.found.append(Mistake(self._path, node.lineno, kind, start, end, before, after))

    def visit_Compare(self, node: ast.Compare) -> None:
        """Exchange the operator."""
        if len(node.ops) == 1:
            was, now = COMPARISONS[type(node.ops[0])]
            start, end = self._place(node.left)[1], self._place(node.comparators[0])[0]
            between = self._text[start:end]
            if between.count(was) == 1:
                changed = between.replace(was, now)
                what = Mistake(self._path, node.lineno, "comparison", start, end, between, changed)
                self.found.append(what)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Add one to a number."""
        if type(node.value) is int:
            self._add(node, "number", str(node.value + 1))

    def _condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if self._source(node.test) != "TYPE_CHECKING":
            self._add(node.test, "condition", f"(not ({self._source(node.test)}))")
            self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _condition

    def visit_Expr(self, node: ast.Expr) -> None:
        """Leave a call out."""
        if isinstance(node.value, ast.Constant) or REPORTS.match(self._source(node.value)):
            return
        if isinstance(node.value, ast.Call):
            self._add(node, "statement", "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Leave out an assignment to something that exists before."""
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "statement", "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Leave it out."""
        self._add(node, "statement", "pass")
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Its value alone."""
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:
        """Annotations are not looked at."""

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Without the annotation of what it returns, and nothing in texts for people."""
        if node.name in ("__repr__", "__str__"):
            return
        for part in [*node.decorator_list, node.args, *node.body]:
            self.visit(part)

    visit_AsyncFunctionDef = visit_FunctionDef


def rooms(root: Path) -> dict[str, list[Path]]:
    """Room -> its files; a room is a package, with all packages below the second level."""
    found: dict[str, list[Path]] = {}
    for top in PRODUCT:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).parent.parts
            if parts[:2] != ("kwire", "messages"):  # declarations: tests compare them with Kafka's
                found.setdefault("/".join(parts[:2]), []).append(path)
    return found


def draw(root: Path, count: int, seed: int) -> list[Mistake]:
    """As many mistakes, each in another room as long as there are rooms left; long files are drawn more often."""
    chance = random.Random(seed)
    found = rooms(root)
    places: dict[Path, list[Mistake]] = {}
    drawn: list[Mistake] = []
    while len(drawn) < count:
        names = sorted(found)
        chance.shuffle(names)
        for room in names:
            [path] = chance.choices(found[room], [len(each.read_bytes()) for each in found[room]])
            if path not in places:
                places[path] = Places(str(path.relative_to(root)), path.read_text()).found
            if places[path] and len(drawn) < count:
                drawn.append(places[path].pop(chance.randrange(len(places[path]))))
    return drawn


def modules_of(path: str) -> tuple[str, str]:
    """The package and the name of a module, as in `from PACKAGE import NAME`."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[-1] == "__init__":
        parts.pop()
    return ".".join(parts[:-1]), parts[-1]


def importing(tests: Path, path: str) -> list[str]:
    """The files of tests that import a module, with the one of its name first."""
    package, name = modules_of(path)
    whole = re.escape(f"{package}.{name}" if package else name)
    pattern = rf"^\s*(from|import) (kwire\.)?{whole}\b"
    if package:
        pattern += rf"|^\s*from (kwire\.)?{re.escape(package)} import (\([^)]*|[^(\n]*)\b{name}\b"
    imports = re.compile(pattern, re.MULTILINE)
    found = [each for each in sorted(tests.rglob("test_*.py")) if imports.search(each.read_text())]
    found.sort(key=lambda each: each.stem != f"test_{name}")
    return [str(each.relative_to(tests.parent)) for each in found]


def sets_of_tests(root: Path, path: str, *, wide: bool) -> Iterator[tuple[str, list[str]]]:
    """What is run for a mistake in a file: how it was chosen, and the files or folders."""
    near = importing(root / "tests", path)
    if near:
        yield "imports it", near
    parts = Path(path).parent.parts
    room = parts[1:] if parts[0] == "server" else parts
    folder = root.joinpath("tests", *room)
    while not folder.is_dir():
        folder = folder.parent
    if parts == ("kwire",):
        folder = root / "tests" / "wire"
    yield (
        ("its room", [str(folder.relative_to(root))])
        if folder != root / "tests"
        else ("its room", [f"tests/{each.name}" for each in sorted(folder.glob("test_*.py"))])
    )
    if wide:
        yield "all", ["tests"]


class Copy:
    """A copy of the last commit, with the tests of the given one, in which tests run."""

    def __init__(self, root: Path, tests: str, marks: str, timeout_s: float) -> None:
        self.root, self._marks, self._timeout_s = root, marks, timeout_s
        self._take("HEAD", ".")
        if tests != "HEAD":
            shutil.rmtree(root / "tests")
            self._take(tests, "tests")
        for made in (*REPOSITORY.glob("kwire/*.so"), *REPOSITORY.glob("server/native/*.so")):
            shutil.copy2(made, root / made.relative_to(REPOSITORY))
        # As an installed kwire has them: those of the editable installation would come from the repository.
        for name in ("server", "pipeline", "testing"):
            (root / "kwire" / name).symlink_to(root / name)
        jars = REPOSITORY / "compat" / "java" / "target"
        if jars.exists():
            (root / "compat" / "java" / "target").symlink_to(jars)

    def _take(self, revision: str, what: str) -> None:
        archive = subprocess.run(
            ["git", "archive", revision, what], cwd=REPOSITORY, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", str(self.root)], input=archive.stdout, check=True)

    def write(self, path: str, text: str) -> None:
        """Change a file, and forget what was compiled from it: its time may be the same, in seconds."""
        file = self.root / path
        file.write_text(text)
        for old in file.parent.glob(f"__pycache__/{file.stem}.*.pyc"):
            old.unlink()

    def first_failing(self, tests: list[str]) -> str | None:
        """The first test that fails, "" if they exceed the time, or None."""
        options = ["-q", "-x", "-p", "no:cacheprovider", "--randomly-seed=1", "-m", self._marks]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
        with subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, _ = process.communicate(timeout=self._timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.communicate()
                return ""
        if process.returncode in (0, 5):  # 5: none was selected
            return None
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
        return failed[1] if failed else said.strip().splitlines()[-1]


def finding(copy: Copy, mistake: Mistake, *, wide: bool) -> str | None:
    """How a mistake is found; None if it is not."""
    text = (copy.root / mistake.path).read_text()
    try:
        for how, tests in sets_of_tests(copy.root, mistake.path, wide=wide):
            copy.write(mistake.path, mistake.planted_in(text))
            failed = copy.first_failing(tests)
            if failed is None:
                continue
            copy.write(mistake.path, text)
            again = [failed] if failed.startswith("tests/") else tests
            if copy.first_failing(again) is not None:
                print(f"   {failed or 'a test that hangs'} fails without the mistake too")
                continue
            return f"{how}: {failed or 'the tests hang'}"
    finally:
        copy.write(mistake.path, text)
    return None


def main() -> None:
    """Plant mistakes, and list which are found."""
    parser = argparse.ArgumentParser(prog="python -m bench.mistakes")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", default="HEAD", metavar="REV", help="the commit of tests/")
    parser.add_argument("--marks", default=QUICK, help="pytest's -m")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for a set of tests")
    parser.add_argument("--wide", action="store_true", help="run all tests for what is left")
    parser.add_argument("--list", action="store_true", help="only show the mistakes")
    options = parser.parse_args()
    if options.list:
        print(*draw(REPOSITORY, options.count, options.seed), sep="\n")
        return
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="kwire-mistakes-") as folder:
        copy = Copy(Path(folder), options.tests, options.marks, options.timeout)
        for number, mistake in enumerate(draw(copy.root, options.count, options.seed), 1):
            found = finding(copy, mistake, wide=options.wide)
            counts["found" if found else "not found"] += 1
            print(f"{number:3} {mistake}\n    {found or 'NOT FOUND'}", flush=True)
    print(f"{counts['found']} of {counts.total()} found by the tests of {options.tests}")


if __name__ == "__main__":
    main()
