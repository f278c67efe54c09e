"""Mistakes that bench.mistakes plants: what they change, and which tests are run for them."""

from __future__ import annotations

import ast
from pathlib import Path

from bench.mistakes import REPOSITORY, Places, draw, importing

SOURCE = '''"""Numbers in texts stay: 1 < 2."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from x import Y

LIMITS: dict[str, int] = {"ä": 3}


def f(self, a: int = 4) -> int:
    if a < 5 and not a:
        self.found = "é" if a else "b"
        log.warning("%d", 6)
        self.close()
    return a
'''


def test_each_place_is_changed_by_itself_and_texts_and_annotations_are_not() -> None:
    found = Places("f.py", SOURCE).found
    assert [(each.line, each.kind, each.before.strip(), each.after.strip()) for each in found] == [
        (7, "number", "3", "4"),
        (10, "number", "4", "5"),
        (11, "condition", "a < 5 and not a", "(not (a < 5 and not a))"),
        (11, "comparison", "<", "<="),
        (11, "number", "5", "6"),
        (12, "statement", 'self.found = "é" if a else "b"', "pass"),
        (12, "condition", "a", "(not (a))"),
        (14, "statement", "self.close()", "pass"),
    ]
    for each in found:
        planted = each.planted_in(SOURCE)
        assert planted != SOURCE
        assert len(planted) == len(SOURCE) + len(each.after) - len(each.before)
        ast.parse(planted)


def test_seed_draws_the_same_mistakes_and_as_many_rooms() -> None:
    drawn = draw(REPOSITORY, 20, 1)
    assert drawn == draw(REPOSITORY, 20, 1) != draw(REPOSITORY, 20, 2)
    assert len({"/".join(Path(each.path).parent.parts[:2]) for each in drawn}) == 20
    for each in drawn:
        ast.parse(each.planted_in((REPOSITORY / each.path).read_text()))


def test_tests_that_import_a_module_are_run_for_it_with_its_own_first() -> None:
    found = importing(REPOSITORY / "tests", "bench/mistakes.py")
    assert found == ["tests/bench/test_mistakes.py"]
    found = importing(REPOSITORY / "tests", "server/metrics/histogram.py")
    assert found[0] == "tests/metrics/test_histogram.py"
