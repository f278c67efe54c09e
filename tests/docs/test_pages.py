"""The files, KIPs and features named in hand-written pages exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from docs.generate import ABSENCES

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted(DOCS.rglob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
#: A file of the source tree: a path, or a name alone.
FILE = re.compile(r"(?<![\w./*<>-])((?:[\w.-]+/)*[\w-]+\.(?:py|toml|md|yml))(?![\w*<>])")
#: A user's own module, and a form to be filled in.
NOT_OURS = ("server.py", "docs/decisions/NNNN-title.md")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchor(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(path: Path) -> set[str]:
    text = FENCE.sub("", path.read_text())
    return {anchor(match) for match in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}


def is_dead(link: str, page: Path) -> bool:
    if re.match(r"[a-z]+:", link):
        return False
    target, _, fragment = link.partition("#")
    path = (page.parent / target).resolve() if target else page
    if not path.exists() or not path.is_relative_to(ROOT):
        return True
    return bool(fragment) and fragment not in anchors(path)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = LINK.findall(FENCE.sub("", page.read_text()))
    assert [link for link in links if is_dead(link, page)] == []


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("docs/omissions.md", False),
        ("docs/omissions.md#quotas", False),
        ("https://kafka.apache.org", False),
        ("docs/gone.md", True),
        ("docs/omissions.md#gone", True),
        ("../outside", True),
    ],
)
def test_dead_links_are_told_from_others(link: str, dead: bool) -> None:
    assert is_dead(link, ROOT / "README.md") is dead


@cache
def source_files() -> tuple[str, ...]:
    trees = ("kwire", "server", "testing", "tests", "docs", "bench", "compat", "pipeline")
    found = [path for tree in trees for path in (ROOT / tree).rglob("*.*")]
    return tuple(f"/{name_of(path)}" for path in [*found, *ROOT.glob("*.*")] if path.is_file())


def missing_files(text: str) -> list[str]:
    """Files that a text names and the tree does not have; `coordinator/x.py` may be below server/."""
    return [
        name
        for name in sorted(set(FILE.findall(text)))
        if not any(path.endswith(f"/{name}") for path in source_files()) and name not in NOT_OURS
    ]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent != DOCS / "changes"], ids=name_of
)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    assert missing_files(LINK.sub("", page.read_text())) == []


def test_files_that_are_gone_are_noticed() -> None:
    text = "`net/transport.py`, log/log.py and kwire/codec.py; but gone.py, `log/gone.py` are not"
    assert missing_files(text) == ["gone.py", "log/gone.py"]


def test_every_folder_of_the_map_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    folders = set(re.findall(r"(?<![\w/<.])((?:[a-z]+/)+)(?=[\s`│,.:)]|$)", text, re.MULTILINE))
    assert folders, "the map names folders"
    bases = [
        ROOT,
        ROOT / "server",
        ROOT / "kwire",
        ROOT / "pipeline",
        ROOT / "server" / "coordinator",
        ROOT / "server" / "log",
    ]
    assert [f for f in sorted(folders) if not any((base / f).is_dir() for base in bases)] == []


# -- kips.md


def kip_rows() -> list[list[int]]:
    rows = []
    for line in (DOCS / "kips.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.match(r"\d", cells[0]):
            rows.append([int(number) for number in cells[0].split(",")])
    return rows


def test_every_kip_that_the_code_names_is_in_the_table() -> None:
    trees = (ROOT / "kwire", ROOT / "server")
    text = "".join(path.read_text() for tree in trees for path in tree.rglob("*.py"))
    named = {int(number) for number in re.findall(r"KIP-(\d+)", text)}
    assert named - {number for numbers in kip_rows() for number in numbers} == set()


# -- omissions.md, decisions/, changes/


def test_every_missing_feature_has_a_section() -> None:
    headings = anchors(DOCS / "omissions.md")
    assert [a.title for a in ABSENCES if anchor(a.title) not in headings] == []


def test_decisions_are_numbered_from_one_and_say_why() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [int(page.name[:4]) for page in pages] == list(range(1, len(pages) + 1))
    for number, page in enumerate(pages, start=1):
        text = page.read_text()
        assert text.startswith(f"# {number}. "), page.name
        parts = re.findall(r"^\*\*(\w+)\.\*\* ", text, re.MULTILINE)
        assert parts == ["Status", "Context", "Choice", "Price"], page.name


def test_each_change_note_is_one_line_of_a_known_kind() -> None:
    for page in (DOCS / "changes").iterdir():
        if page.name == "README.md":
            continue
        assert re.fullmatch(r"[a-z0-9-]+\.(added|changed|fixed)\.md", page.name), page.name
        text = page.read_text()
        assert text.count("\n") == 1, page.name
        assert text.endswith(".\n"), page.name
