"""Writes the results into three pages (a comparison, the goals, all tables), and draws the plots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from . import goals, plots
from .results import Results, Spread
from .subjects import KAFKA_39, KAFKA_43, KWIRE, NAMES, PURE

SHORT_NAMES = {KAFKA_39: "3.9.2", KAFKA_43: "4.3.0", KWIRE: "kwire", PURE: "pure Python"}


class Column(NamedTuple):
    """One figure of a kind, shown for every subject. Shape: best is min if less is better."""

    figure: str
    label: str
    best: Callable[..., float] = min


class Table(NamedTuple):
    """The heading for one kind of measurement, and a note for the reader."""

    kind: str
    heading: str
    text: str
    columns: tuple[Column, ...]


CPU = Column("cpu_s_per_gb", "broker CPU s per GB of record values")
KERNEL = Column("kernel_s_per_gb", "of which in the kernel")
TABLES = (
    Table(
        "start",
        "Start and rest",
        "From the start of the process to the first answer to Metadata; memory (resident set of all the broker's processes) 3 s "
        "later. ZooKeeper ran already and is not counted, anywhere on this page.",
        (Column("seconds", "s"), Column("rest_mb", "MB at rest")),
    ),
    Table(
        "first minute",
        "Just after start",
        "A fixed load by the Go client from the first answer on; the CPU time of the start itself is in the second table only.",
        (CPU, Column("with_start_cpu_s_per_gb", "broker CPU s per GB, start included")),
    ),
    Table(
        "produce",
        "Produce",
        "A cell names client (java: kafka-producer-perf-test 3.9.2; rdkafka: confluent-kafka; go: franz-go), record and batch "
        "size, compression, acks, partitions, producers with a connection each, and idempotence. The number of records is the same "
        "for all brokers and is counted at the broker afterwards; the time of acks=0 ends when the broker has them all.",
        (Column("mb_s", "MB/s", max), CPU, KERNEL),
    ),
    Table(
        "catch-up",
        "Consume: catch-up",
        "Reading 1 KB records of six partitions from the first to the last. Each of the given number of consumers reads all of them; "
        "`discard` reads only the headers of the batches, not the records, and uses two connections if there is one consumer.",
        (Column("mb_s", "MB/s", max), CPU, KERNEL),
    ),
    Table(
        "tail",
        "Consume: tail",
        "20 MB/s are produced and read immediately by clients that discard. The CPU time of the same load without consumers, "
        "in the first row, is subtracted before dividing by the GB read.",
        (CPU,),
    ),
    Table(
        "latency",
        "End-to-end latency",
        "From the time at which a record of 100 bytes was due to be sent until the consumer has it; one process (franz-go, acks=all, "
        "no linger) does both. Records that had to wait because the broker or the client was late count from their intended time.",
        (Column("p50_us", "p50 µs"), Column("p99_us", "p99 µs"), Column("p999_us", "p99.9 µs")),
    ),
    Table(
        "latency alone",
        "End-to-end latency with one broker running",
        "The same, after as long a load of 10,000 records/s, while the other brokers are stopped, not idle.",
        (Column("p50_us", "p50 µs"), Column("p99_us", "p99 µs"), Column("p999_us", "p99.9 µs")),
    ),
    Table(
        "rebalance",
        "Rebalance",
        "Each member has its own connection. Forming: until all are in one generation, with heartbeats every 200 ms. Rebalance: "
        "the leader triggers it, and the others join as soon as a heartbeat reports it; until the last one has its assignment.",
        (Column("rebalance_ms", "ms for a rebalance"), Column("form_ms", "ms to form")),
    ),
    Table(
        "transactions",
        "Transactions",
        "One record and a commit each, by franz-go. If a broker is still writing the markers of a transaction when the same producer "
        "begins the next, it refuses; the client then waits some ms and retries, and the wait is included in the figure.",
        (Column("per_s", "transactions/s", max),),
    ),
    Table(
        "idle",
        "Idle connections",
        "The growth of the resident set for each connection that was used once and then kept open.",
        (Column("kb_each", "KB each"), Column("ping_max_ms", "longest ping in ms beside them")),
    ),
    Table(
        "partitions",
        "Many partitions",
        "Created 100 topics at a time; memory 5 s later; then a clean stop and a start, until the broker could return the end offset "
        "of every partition.",
        (
            Column("create_s", "s to create"),
            Column("memory_mb", "MB"),
            Column("kb_each", "KB each"),
            Column("start_s", "s to start again"),
        ),
    ),
    Table(
        "metadata",
        "Metadata requests beside these partitions",
        "Two connections that send each request as soon as the last is answered.",
        (Column("per_s", "requests/s", max),),
    ),
)
CURVES = Table("curve", "How cost grows", "", ())


def number(value: float) -> str:
    """A number with three significant digits and thousands separators."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def spread(value: Spread | None) -> str:
    """Median, and the range if there was more than one round."""
    if value is None:
        return "--"
    if value.rounds == 1:
        return number(value.middle)
    return f"{number(value.middle)} ({number(value.low)} to {number(value.high)})"


def ratio(value: float | None) -> str:
    """Two digits."""
    return "--" if value is None else f"{value:.2f}"


def rows_of(header: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A table in Markdown."""
    head = list(header)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows), ""]


def comparison(results: Results, kind: str, column: Column) -> list[str]:
    """One figure: a row for each case, a column for each subject, kwire's ratios."""
    subjects = [name for name in NAMES if any(row["subject"] == name for row in results.rows)]
    rows = []
    for case in results.cases(kind):
        values = [results.spread(kind, case, name, column.figure) for name in subjects]
        if not any(values):
            continue
        to_39 = results.ratio(kind, case, KWIRE, [KAFKA_39], column.figure)
        to_best = results.ratio(kind, case, KWIRE, [KAFKA_39, KAFKA_43], column.figure, column.best)
        rows.append([case, *map(spread, values), ratio(to_39), ratio(to_best)])
    if not rows:
        return []
    header = [column.label, *(SHORT_NAMES[name] for name in subjects), "to 3.9.2", "to the better"]
    return rows_of(header, rows)


#: The command that measures a form.
COMMANDS = {
    "short": "make bench",
    "medium": "make bench ARGS=--medium",
    "long": "make bench-long",
}


def _machine(results: Results) -> list[str]:
    about: dict[str, Any] = results.machine
    seconds = sum(about.get("seconds", {}).values())
    rounds = f", {about['rounds']} rounds" if "rounds" in about else ""
    return [
        f"The {results.form} form, `{COMMANDS.get(results.form, '?')}`, on {about.get('date', '?')}, of kwire "
        f"{about.get('kwire', '?')}, in {seconds / 60:.0f} minutes{rounds}: {about.get('processor', '?')}, {about.get('cores', '?')} cores, "
        f"{about.get('memory_gib', '?')} GiB; {about.get('kernel', '?')}, Python {about.get('python', '?')}, "
        f"{about.get('java', '?')}, {about.get('go', '?')}. Load average before: "
        f"{', '.join(map(str, about.get('load_before', [])))}.",
        "",
    ]


def _conditions(results: Results) -> str:
    about: dict[str, Any] = results.machine
    return (
        f"Measured on {about.get('date', '?')} by `{COMMANDS.get(results.form, '?')}` on {about.get('cores', '?')} cores of "
        f"{about.get('processor', '?')}. Java's clients produced and consumed records of 1 KB in batches of 16 KiB and six partitions, with "
        "acks=all; franz-go measured latency."
    )


BEGIN = "<!-- Written by `python -m bench.suite`; `--render docs/performance/results.json` writes it again. -->"
END = "<!-- End of what is written. -->"
#: The content of a new page.
NEW_PAGE = f"# Performance\n\n{BEGIN}\n{END}\n"


def _limits(results: Results) -> list[str]:
    cases = results.cases("limit")
    if not cases:
        return []
    rows = [
        [
            case,
            *(
                spread(results.spread("limit", case, "machine", f))
                for f in ("mb_s", "cpu_s_per_gb")
            ),
        ]
        for case in cases
    ]
    text = (
        "A C program without a protocol: it receives batches of one size and writes them to a file, with or without a CRC-32C of "
        "each, or sends a file with `sendfile` to two connections that discard. The CPU time is that of this process alone."
    )
    return ["## The machine's limits", "", text, "", *rows_of(["", "MB/s", "CPU s per GB"], rows)]


def _pings(results: Results) -> list[str]:
    rows = []
    subjects = [name for name in NAMES if any(row["subject"] == name for row in results.rows)]
    for kind in dict.fromkeys(row["kind"] for row in results.rows):
        if kind == "idle":
            continue
        longest = {}
        for name in subjects:
            found = [
                value
                for case in results.cases(kind)
                for value in results.values(kind, case, name, "ping_max_ms")
            ]
            if found:
                longest[name] = max(found)
        if longest:
            rows.append([kind, *(number(longest[n]) if n in longest else "--" for n in subjects)])
    if not rows:
        return []
    text = (
        "During every load, a separate connection requests ApiVersions every 5 ms. The table has the longest response time of all "
        "runs, in ms: what a stall of kwire's event loop, a garbage collection, or a lack of cores costs another client."
    )
    header = ["load", *(SHORT_NAMES[name] for name in subjects)]
    return ["## The longest stall", "", text, "", *rows_of(header, rows)]


def _failures(results: Results) -> list[str]:
    lines = [f"- {text}" for text in results.notes]
    for row in results.rows:
        if "failed" in row:
            reason = " ".join(row["failed"].split())[:300].replace("|", "/")
            lines.append(f"- {row['kind']}, {row['case']}, {row['subject']}: failed: `{reason}`")
    return ["## Not measured", "", *lines, ""] if lines else []


def comparison_of(results: Results, folder: str) -> str:
    """The part of a run for the page that people read: a few figures beside Apache Kafka's, and their plot in `folder`."""
    shown = plots.compared(results)
    if not shown:
        return _conditions(results)
    rows = []
    for each in shown:
        case = each.kind, each.case
        values = [results.spread(*case, name, each.figure) for name in plots.COMPARED]
        ratio_to_39 = results.ratio(*case, KWIRE, [KAFKA_39], each.figure)
        label = f"{each.label}, {each.unit}" + (" (more is better)" if each.more_is_better else "")
        rows.append([label, *map(spread, values), ratio(ratio_to_39)])
    header = ["", *plots.COMPARED, "kwire to 3.9.2"]
    plot = f"![kwire beside Apache Kafka]({folder}/{plots.COMPARISON})"
    return "\n".join([plot, "", *rows_of(header, rows), _conditions(results)])


def goals_of(results: Results) -> str:
    """The machine, and which goals a run meets."""
    header, rows = ["", "goal", "value", ""], goals.lines(results)
    if any(row["subject"] == PURE for row in results.rows):
        pure = goals.lines(results.with_instead(PURE, KWIRE))
        header += ["in pure Python", ""]
        rows = [[*row, *others[2:]] for row, others in zip(rows, pure, strict=True)]
    return "\n".join([*_machine(results), *rows_of(header, rows)])


def tables_of(results: Results, folder: str) -> str:
    """Every figure of a run; plots are linked as files in `folder`, next to the page."""
    text = _machine(results)
    drawn = plots.wanted(results)
    for table in TABLES:
        columns = [comparison(results, table.kind, column) for column in table.columns]
        if not any(columns):
            continue
        text += [f"## {table.heading}", "", table.text, ""]
        if table.kind in drawn:
            text += [f"![{table.heading}]({folder}/{table.kind}.svg)", ""]
        for lines in columns:
            text += lines
    text += _limits(results) + _pings(results) + _curves(results, folder) + _failures(results)
    return "\n".join(text)


def _curves(results: Results, folder: str) -> list[str]:
    if not results.cases("curve"):
        return []
    text = ["## How cost grows", ""]
    for name in plots.curves_of(results):
        text += [f"![{name}]({folder}/{plots.curve_file(name)})", ""]
    for figure in results.figures_of("curve"):
        if not figure.startswith("ping"):
            text += comparison(results, "curve", Column(figure, plots.AXES.get(figure, figure)))
    return text


def put_into(page: Path, block: str) -> None:
    """Write a block between its two marks; the text around it is written by hand. Errors: ValueError without marks."""
    text = page.read_text() if page.exists() else NEW_PAGE
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{page} has no place for what is measured: {BEGIN} and {END}")
    page.write_text(f"{before}{BEGIN}\n\n{block.strip()}\n\n{END}{after}")


def goals_page(page: Path) -> Path:
    """The page with the goals, in the folder of results."""
    return page.parent / "results" / f"{page.stem}-goals.md"


def tables_page(page: Path) -> Path:
    """The page with the tables, in the folder of results."""
    return page.parent / "results" / f"{page.stem}-tables.md"


def write(results: Results, page: Path) -> None:
    """Write the plots, the comparison into the page, and goals and tables into their pages in `results`."""
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    goals_page(page).parent.mkdir(exist_ok=True)
    plots.draw(results, folder)
    put_into(page, comparison_of(results, folder.name))
    put_into(goals_page(page), goals_of(results))
    put_into(tables_page(page), tables_of(results, f"../{folder.name}"))
