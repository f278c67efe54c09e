"""The arithmetic of the benchmark, without brokers: cells, medians, ratios, goals, the page."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.suite import __main__ as main
from bench.suite import cells, goals, limits, report, tools
from bench.suite.cells import Cell
from bench.suite.consuming import DISCARD
from bench.suite.results import Results
from bench.suite.sections import SECTIONS
from bench.suite.subjects import KAFKA_39, KAFKA_43, KWIRE

DEFAULT = cells.DEFAULT_CELLS[0].name


def results_of(*rows: tuple[str, str, str, dict[str, float]]) -> Results:
    """Results with rounds counted for each kind, case and subject."""
    results = Results(form="short", machine={"date": "2020-01-01", "seconds": {"produce": 60}})
    counts: dict[tuple[str, str, str], int] = {}
    for kind, case, subject, figures in rows:
        number = counts.get((kind, case, subject), 0)
        counts[kind, case, subject] = number + 1
        results.add(kind, case, subject, number, figures)
    return results


def sample() -> Results:
    """Three rounds of one cell, and one figure of each other kind that has a goal."""
    rows = [
        ("produce", DEFAULT, subject, {"mb_s": mb, "cpu_s_per_gb": cpu, "peak_mb": peak})
        for subject, mb, cpu, peak in (
            (KAFKA_39, 100.0, 2.0, 800.0),
            (KAFKA_43, 120.0, 1.5, 900.0),
            (KWIRE, 150.0, 0.6, 80.0),
            (KAFKA_39, 90.0, 2.2, 700.0),
            (KAFKA_43, 110.0, 1.6, 900.0),
            (KWIRE, 30.0, 3.0, 80.0),
            (KAFKA_39, 110.0, 1.8, 800.0),
            (KAFKA_43, 130.0, 1.4, 900.0),
            (KWIRE, 160.0, 0.5, 80.0),
        )
    ]
    rows += [
        ("limit", goals.limit_case(16_384), limits.MACHINE, {"mb_s": 900, "cpu_s_per_gb": 0.3}),
        ("limit", "sendfile", limits.MACHINE, {"mb_s": 3000, "cpu_s_per_gb": 0.1}),
        ("catch-up", DISCARD.name, KWIRE, {"wire_mb_s": 2100, "peak_mb": 90, "ping_max_ms": 4}),
        ("latency", "1,000 records/s", KAFKA_39, {"p50_us": 500, "p99_us": 3000, "p999_us": 9000}),
        ("latency", "1,000 records/s", KAFKA_43, {"p50_us": 400, "p99_us": 2000, "p999_us": 8000}),
        ("latency", "1,000 records/s", KWIRE, {"p50_us": 450, "p99_us": 1500, "p999_us": 4000}),
        ("start", "a new directory", KAFKA_39, {"seconds": 4.0, "rest_mb": 360}),
        ("start", "a new directory", KWIRE, {"seconds": 0.3, "rest_mb": 33}),
        *(
            ("curve", f"groups: {count:,}", subject, {"per_s": 1000.0})
            for count in (1, 1000)
            for subject in (KAFKA_39, KWIRE)
        ),
    ]
    return results_of(*rows)


# -- cells -----------------------------------------------------------------------------------------


def test_fixed_cells_cover_every_possible_pair() -> None:
    covered = set[cells.Pair]()
    for cell in cells.load():
        covered |= cells.pairs_of(cells.factors_of(cell))
    assert cells.all_pairs() - covered == set()


def test_pairs_left_out_are_those_that_no_client_can_do() -> None:
    every = {
        (a, one, b, other)
        for a, b in itertools.combinations(cells.FACTORS, 2)
        for one in cells.FACTORS[a]
        for other in cells.FACTORS[b]
    }
    assert every - cells.all_pairs() == {
        ("client", "java", "connections", 10),
        ("client", "java", "connections", 100),
        ("acks", "0", "idempotent", True),
        ("acks", "1", "idempotent", True),
    }


def test_fixed_cells_are_those_that_the_generator_makes() -> None:
    assert cells.PATH.read_text() == cells.text_of(cells.generate())


def test_fixed_cells_are_few_possible_distinct_and_begin_with_the_defaults() -> None:
    fixed = cells.load()
    assert len(fixed) <= cells.MAX_CELLS
    assert all(cells.is_possible(cells.factors_of(cell)) for cell in fixed)
    assert len({cell.name for cell in fixed}) == len(fixed)
    assert tuple(fixed[: len(cells.DEFAULT_CELLS)]) == cells.DEFAULT_CELLS
    assert sum(cell.kind == "short" for cell in fixed) == cells.SHORT_OTHERS


def test_file_of_cells_with_an_unknown_word_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cells.json"
    path.write_text('[{"client": "go", "colour": "red"}]')
    with pytest.raises(ValueError, match="colour"):
        cells.load(path)


def test_cell_given_is_not_chosen_again() -> None:
    given = cells.generate()
    assert cells.covering(given) == []
    assert cells.covering([Cell()]) != []


# -- results ---------------------------------------------------------------------------------------


def test_ratio_is_of_medians_and_to_the_better_of_the_others() -> None:
    results = sample()
    assert results.spread("produce", DEFAULT, KWIRE, "mb_s") == (150.0, 30.0, 160.0, 3)
    both = [KAFKA_39, KAFKA_43]
    assert results.ratio("produce", DEFAULT, KWIRE, [KAFKA_39], "mb_s") == 1.5
    assert results.ratio("produce", DEFAULT, KWIRE, both, "mb_s", max) == 150 / 120
    assert results.ratio("produce", DEFAULT, KWIRE, both, "cpu_s_per_gb") == 0.6 / 1.5
    assert results.ratio("latency", "no such", KWIRE, both, "p50_us") is None


def test_results_are_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    results = sample()
    results.add_failure("produce", DEFAULT, KWIRE, 3, 'it said "no"')
    results.notes.append("something: not measured")
    results.path = tmp_path / "results.json"
    results.save()
    read = Results.load(results.path)
    assert (read.form, read.machine, read.notes, read.rows) == (
        results.form,
        results.machine,
        results.notes,
        results.rows,
    )


# -- goals -----------------------------------------------------------------------------------------


def verdict(what: str, results: Results) -> list[tuple[str, str]]:
    """Value and verdict of the goals of that name."""
    return [(row[2], row[3]) for row in goals.lines(results) if row[0].startswith(what)]


def test_goals_are_judged_by_medians_on_the_right_side() -> None:
    results = sample()
    (cpu,) = verdict("broker CPU for each GB produced, 16", results)
    assert cpu == (f"0.30 ({DEFAULT})", "met")
    (worst,) = verdict("produce throughput, the worst", results)
    assert worst == (f"1.25 ({DEFAULT}; 1 of 1 cells reach it)", "met")
    (sendfile,) = verdict("catch-up by a client", results)
    assert sendfile == ("0.70 (2,100 of 3,000 MB/s)", "**missed**")
    p50, p99, p999 = verdict("end-to-end latency", results)
    assert p50 == ("1.12 (1,000 records/s)", "**missed**")  # against the better of the two
    assert p99 == ("0.50 (1,000 records/s)", "met")
    assert p999 == ("0.44 (1,000 records/s)", "met")
    assert verdict("start to first", results) == [
        ("0.07 (a new directory)", "met"),
        ("0.30 (a new directory)", "met"),
    ]
    (load,) = verdict("memory under load", results)
    assert load == ("0.11 (90 of 800 MB)", "met")


def test_goal_without_figures_is_not_called_met() -> None:
    rows = goals.lines(Results())
    assert len(rows) == len(goals.GOALS)
    assert {row[3] for row in rows} == {"not measured"}


def test_failed_round_counts_for_nothing_and_is_told() -> None:
    results = results_of(("produce", DEFAULT, KAFKA_39, {"mb_s": 100.0}))
    results.add_failure("produce", DEFAULT, KWIRE, 0, "5 of 10 records were acknowledged")
    assert goals.throughput_ratios(results) == []
    assert "5 of 10 records were acknowledged" in report.tables_of(results, "performance")


# -- the page --------------------------------------------------------------------------------------


def test_page_and_plots_are_written_and_refer_to_each_other(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"Kept above.\n\n{report.BEGIN}\nold figures\n{report.END}\n\nKept below.\n")
    report.write(sample(), page)
    assert page.read_text().startswith("Kept above.\n")
    assert page.read_text().endswith("\nKept below.\n")
    assert "old figures" not in page.read_text()
    assert "![kwire beside Apache Kafka](performance/comparison.svg)" in page.read_text()
    assert "| start to first metadata |" in report.goals_page(page).read_text()
    text = report.tables_page(page).read_text()
    row = f"| {DEFAULT} | 100 (90.0 to 110) | 120 (110 to 130) | 150 (30.0 to 160) | 1.50 | 1.25 |"
    assert row in text
    plots = set(re.findall(r"\((?:\.\./)?(performance/[\w-]+\.svg)\)", page.read_text() + text))
    assert plots == {f"performance/{path.name}" for path in tmp_path.glob("performance/*.svg")}
    assert {"performance/produce.svg", "performance/curve-groups.svg"} <= plots
    for line in text.splitlines():
        assert not re.search(r"\bNone\b|\bnan\b", line), line


def test_stored_pages_have_the_stored_figures() -> None:
    page = main.PAGE
    results = Results.load(page.with_suffix("") / "results.json")
    assert report.comparison_of(results, "performance").strip() in page.read_text()
    assert report.goals_of(results).strip() in report.goals_page(page).read_text()
    tables = report.tables_of(results, "../performance").strip()
    assert tables in report.tables_page(page).read_text()


def test_page_without_a_place_for_figures_is_refused_and_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("Written by hand.\n")
    with pytest.raises(ValueError, match=r"performance\.md has no place"):
        report.put_into(page, "figures")
    assert page.read_text() == "Written by hand.\n"


def test_same_results_give_the_same_page(tmp_path: Path) -> None:
    texts = []
    results = results_of(("curve", "groups: 1", KWIRE, {"per_s": 1000.0}))
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        report.write(results, folder / "p.md")
        texts.append([path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()])
    assert texts[0] == texts[1]


def test_every_kind_that_a_table_shows_has_a_heading_of_its_own() -> None:
    kinds = [table.kind for table in report.TABLES]
    assert len(set(kinds)) == len(kinds)
    assert {"start", "produce", "catch-up", "tail", "latency", "curves", "partitions"} <= set(
        SECTIONS
    )


# -- the machine's limits --------------------------------------------------------------------------


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs cc")
def test_limits_program_writes_and_sends_every_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tools, "CACHE", tmp_path / "cache")
    program = tools._built(
        "limits", [tools.C_SOURCE], "cc", ["cc", "-O1", "-Wall", "-Werror"], tools.BENCH
    )
    path, size = tmp_path / "file", 3 * 2**20 + 5
    with subprocess.Popen(
        [program, "sink", "16384", path, "crc"], stdout=subprocess.PIPE, text=True
    ) as sink:
        assert sink.stdout is not None
        port = sink.stdout.readline().strip()
        subprocess.run([program, "feed", port, str(size)], check=True, timeout=30)
        assert int(sink.stdout.read().split()[0]) == size
    assert path.read_bytes() == b"k" * size
    with subprocess.Popen([program, "source", path, "2"], stdout=subprocess.PIPE, text=True) as out:
        assert out.stdout is not None
        port = out.stdout.readline().strip()
        drains = [subprocess.Popen([program, "drain", port]) for _ in range(2)]
        assert int(out.stdout.read().split()[0]) == 2 * size
        assert [drain.wait(30) for drain in drains] == [0, 0]
