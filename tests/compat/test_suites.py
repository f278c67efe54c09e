"""The runner of other projects' test suites: its parsers, and the agreement of its lists and its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.suites.__main__ import ROOM, SUITES, read

REPORT = """<testsuites><testsuite>
<testcase classname="a" name="good"/>
<testcase classname="a" name="bad"><failure/></testcase>
<testcase classname="a" name="broken"><error/></testcase>
<testcase classname="a" name="broken"/>
<testcase classname="a" name="left_out"><skipped/></testcase>
</testsuite></testsuites>"""


def test_report_is_read(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_text(REPORT)
    assert read(path) == {
        "a::good": "passed",
        "a::bad": "failed",
        "a::broken": "failed",
        "a::left_out": "skipped",
    }


@pytest.mark.parametrize("name", SUITES)
def test_lists_are_sorted_and_the_page_has_the_versions(name: str) -> None:
    suite = SUITES[name]
    listed = (ROOM / f"{name}.allow").read_text().splitlines()
    assert listed
    assert listed == sorted(set(listed))
    assert f"{suite.distribution} {suite.version}" in (ROOM / "README.md").read_text()
