"""The outcome of an audit as one self-contained HTML file: no script, no font, no server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from .facts import PartitionFacts
from .findings import KINDS, Finding
from .plots import plots
from .report import Report, why, write_whole

#: Rows shown in one table; the JSON report has all.
MAX_ROWS = 500

_CSS = """
:root{--ink:#1c2128;--soft:#5f6670;--line:#dfe3e8;--paper:#fff;--bad:#b3261e;--good:#1b7a43;--shade:#f6f7f9}
*{box-sizing:border-box}
body{margin:0;background:var(--shade);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1240px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0 0 2px}h2{font-size:17px;margin:34px 0 8px}h3{font-size:14px;margin:18px 0 6px;color:var(--soft);font-weight:600}
p{margin:4px 0}.soft{color:var(--soft);font-size:13px}
.verdict{border-radius:8px;padding:14px 18px;margin:18px 0;color:#fff;font-size:17px;font-weight:600}
.bad{background:var(--bad)}.good{background:var(--good)}
.tiles{display:flex;flex-wrap:wrap;gap:12px}
.tile{background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:10px 14px;flex:1 1 150px}
.tile b{display:block;font-size:21px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.sheet{background:var(--paper);border:1px solid var(--line);border-radius:8px;overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th,td{text-align:left;padding:6px 12px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}th{color:var(--soft);font-weight:600;white-space:nowrap}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.p{white-space:nowrap}td.h{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}
.tag{display:inline-block;border-radius:4px;padding:1px 7px;font-size:12px;font-weight:600;white-space:nowrap}
.tag.bad,.tag.good{color:#fff}.tag.note{background:#e8eaed;color:#3c4250}
figure{margin:0;background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:12px}
figure svg{display:block;width:100%;height:auto}figcaption{color:var(--soft);font-size:13px;margin-bottom:6px}
@media print{body{background:#fff}}
"""


def write_page(report: Report, path: Path) -> None:
    """Write the page; the file appears in full or not at all. Errors: OSError."""
    write_whole(path, page(report))


def page(report: Report) -> str:
    """The page as text."""
    when = datetime.fromtimestamp(report.began, UTC).strftime("%Y-%m-%d %H:%M UTC")
    places = "; ".join(f"{kind} {name}" for name, kind in report.places)
    look = "bad" if report.is_wrong else "good"
    parts = [
        f"<h1>Audit</h1><p class=soft>{when}, {report.seconds:.0f} s. {escape(places)}</p>",
        f'<div class="verdict {look}">{escape(report.verdict)}</div>',
        _tiles(report),
        _findings(report.findings),
        _comparisons(report),
    ]
    for title, text, svg in plots(report):
        parts.append(f"<h2>{title}</h2><figure><figcaption>{text}</figcaption>{svg}</figure>")
    parts.append("<h2>Partitions</h2>")
    for name, kind in report.places:
        own = [facts for facts in report.partitions if facts.place == name]
        parts.append(f"<h3>{escape(kind)} {escape(name)}</h3>{_partitions(own)}")
    parts.append(_words())
    body = "\n".join(parts)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Audit {when}</title><style>{_CSS}</style></head><body><main>{body}</main></body></html>\n"
    )


def _tiles(report: Report) -> str:
    parts = report.partitions
    explained = sum(sum(facts.explained.values()) for facts in parts)
    equal = sum(comparison.equal for comparison in report.comparisons)
    tiles = [
        (f"{sum(facts.rows for facts in parts):,}", "records read"),
        (_size(sum(facts.bytes for facts in parts)), "keys and values"),
        (f"{len(parts):,}", "partitions"),
        (f"{sum(facts.unexplained_count for facts in parts):,}", "offsets missing"),
        (f"{explained:,}", "explained offsets without a record"),
    ]
    if report.comparisons:
        tiles.append((f"{equal:,} of {len(report.comparisons):,}", "comparisons equal"))
    cells = "".join(
        f"<div class=tile><b>{number}</b><span>{text}</span></div>" for number, text in tiles
    )
    return f"<div class=tiles>{cells}</div>"


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<h2>Findings</h2><p>None.</p>"
    rows = [
        (
            _tag("wrong", "bad") if one.is_wrong else _tag("to know", "note"),
            escape(one.kind),
            escape(f"{one.topic}-{one.partition}"),
            escape(one.place),
            escape(one.text),
        )
        for one in sorted(findings, key=lambda one: not one.is_wrong)
    ]
    return "<h2>Findings</h2>" + _table(
        ("", "kind", "partition", "place", "what"), rows, places=(1, 2, 3)
    )


def _comparisons(report: Report) -> str:
    if not report.comparisons:
        return ""
    rows = [
        (
            _tag("equal", "good") if one.equal else _tag("different", "bad"),
            escape(one.first),
            escape(one.second),
            escape(f"by {one.by}" + (f" in {one.range}" if one.range else "")),
            f"{one.rows[0]:,}",
            f"{one.rows[1]:,}",
            one.digests[0],
        )
        for one in report.comparisons
    ]
    head = ("", "first", "second", "how", "records", "records", "hash of the first")
    return "<h2>Comparisons</h2>" + _table(head, rows, numbers=(4, 5), hashes=(6,))


def _partitions(parts: Iterable[PartitionFacts]) -> str:
    rows = [
        (
            escape(f"{facts.topic}-{facts.partition}"),
            f"{facts.rows:,}",
            _size(facts.bytes),
            f"{facts.range.start:,}",
            f"{facts.range.end:,}",
            _time(facts.min_timestamp),
            _time(facts.max_timestamp),
            f"{facts.unexplained_count:,}",
            escape(why(facts)),
            f"{facts.duplicates:,}",
            str(facts.ordered),
        )
        for facts in parts
    ]
    head = (
        "partition",
        "records",
        "bytes",
        "first offset",
        "end offset",
        "oldest",
        "newest",
        "missing",
        "explained",
        "double",
        "hash by order",
    )
    return _table(head, rows, numbers=(1, 2, 3, 4, 7, 9), hashes=(10,))


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Sequence[int] = (),
    hashes: Sequence[int] = (),
    places: Sequence[int] = (),
) -> str:
    def cells(row: Sequence[str], tag: str) -> str:
        looks = {
            **dict.fromkeys(numbers, " class=n"),
            **dict.fromkeys(hashes, " class=h"),
            **dict.fromkeys(places, " class=p"),
        }
        return "".join(
            f"<{tag}{looks.get(number, '')}>{cell}</{tag}>" for number, cell in enumerate(row)
        )

    body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in rows[:MAX_ROWS])
    more = len(rows) - MAX_ROWS
    rest = f"<p class=soft>{more:,} more in the JSON report.</p>" if more > 0 else ""
    return f"<div class=sheet><table><tr>{cells(head, 'th')}</tr>{body}</table></div>{rest}"


def _words() -> str:
    rows = [(escape(kind), escape(text)) for kind, text in KINDS.items()]
    return "<h2>Kinds of findings</h2>" + _table(("kind", "what it means"), rows)


def _tag(text: str, look: str) -> str:
    return f'<span class="tag {look}">{text}</span>'


def _time(timestamp_ms: int | None) -> str:
    if timestamp_ms is None:
        return ""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _size(size: int) -> str:
    number = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
