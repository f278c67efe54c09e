"""Numbers and times as the pages show them."""

from __future__ import annotations

import pytest

from server.console import units
from server.console.charts import HEIGHT, WIDTH, History, Sample, chart


def plain(text: str) -> str:
    return text.replace(units.THIN_SPACE, " ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, units.NONE),
        (-1, units.NONE),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 40, "1 TiB"),
    ],
)
def test_sizes_have_the_largest_unit_that_fits(value: int | None, text: str) -> None:
    assert plain(units.size(value)) == text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (61_000, "1 min 1 s"),
        (3_600_000, "1 h"),
        (90_000_000, "1 d 1 h"),
        (-1, units.NONE),
    ],
)
def test_durations_have_two_units(ms: int, text: str) -> None:
    assert plain(units.duration(ms)) == text


def test_rates_are_scaled_by_what_they_count() -> None:
    assert plain(units.rate(2048, "B")) == "2 KiB/s"
    assert plain(units.rate(1_500)) == "1.5 k/s"
    assert plain(units.rate(0.25)) == "0.2/s"


def test_moment_outside_the_calendar_is_a_number() -> None:
    assert units.moment(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert plain(units.moment(1 << 62)) == f"{1 << 62} ms"
    assert units.iso(1 << 62) == ""
    assert units.iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"


def test_counts_are_grouped_and_have_their_noun() -> None:
    assert units.grouped(None) == units.grouped(-1) == units.NONE
    assert units.plural(1, "topic") == "1 topic"
    assert units.plural(2, "partition has", "partitions have") == "2 partitions have"
    assert units.plural(2, "<b>", "<b>") == "2 &lt;b&gt;"


def test_digits_of_a_count_are_copied_without_anything_between_them() -> None:
    assert units.grouped(999) == "999"
    assert units.grouped(1234567) == '1<span class="g">234</span><span class="g">567</span>'
    assert units.grouped(1234567).striptags() == "1234567"


def test_rates_come_from_differences_and_never_fall_below_zero() -> None:
    history = History()
    for at_ms, bytes_in in ((0, 100), (5_000, 600), (10_000, 50)):
        history.add(Sample(at_ms, bytes_in, 0, 0, 0))
    assert history.rates("bytes_in") == [100.0, 0.0]
    assert [plot.name for plot in history.charts()] == [
        "Bytes in",
        "Bytes out",
        "Messages in",
        "Requests",
    ]


def test_plot_ends_at_the_right_edge_and_stays_in_its_box() -> None:
    plot = chart("x", "", [0.0, 5.0, 10.0])
    assert plot.line.startswith("M") and plot.line.endswith(f"{WIDTH:.1f} 1.0")
    heights = [float(point.split()[1]) for point in plot.line[1:].split(" L")]
    assert heights == [HEIGHT - 1, (HEIGHT - 1 + 1) / 2, 1.0]
    assert chart("x", "", []).now is None
    assert chart("x", "", [0.0, 0.0]).most == 0
