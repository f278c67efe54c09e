"""Files made from an archive's own: the values parsed into columns, and the dead letters.

| archive | `topic=orders/date=D/hour=H/F.parquet` |
| --- | --- |
| values | `_values/delta/orders/date=D/hour=H/F.parquet` |
| dead letters | `_dead_letters/delta/orders/date=D/hour=H/F.parquet` |

The names follow from the archive's, so that a run that was killed writes the same files again; one without records is not
written. Tables of different formats do not share them: after a kill, one table could name a file that is written again for the
other, by another schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..manifest import ArchiveFile
from ..schemas.values import ValueSchema, parse_all
from .place import raw_schema
from .stores import file_system

KINDS = VALUES, DEAD_LETTERS = "_values", "_dead_letters"
#: The columns beside those of the values -> the archive's columns.
OWN = {
    "_key": "key",
    "_partition": "partition",
    "_offset": "offset",
    "_timestamp": "timestamp",
    "_headers": "headers",
}


def derived(path: str, kind: str, format: str) -> str:
    """Where the values or the dead letters of an archive's file are, for the table of a format."""
    topic, _, rest = path.partition("/")
    return f"{kind}/{format}/{topic.removeprefix('topic=')}/{rest}"


def columns_of(kind: str, schema: ValueSchema) -> pa.Schema:
    """The columns of a table of values, or of dead letters.

    None is required, since another schema may leave it out.
    """
    if kind == DEAD_LETTERS:
        return raw_schema().append(pa.field("error", pa.string()))
    own = [pa.field(name, raw_schema().field(of).type) for name, of in OWN.items()]
    return pa.schema([*(field.with_nullable(True) for field in schema.columns), *own])


class Work(NamedTuple):
    """One file of an archive at `root`, and what to make of it; `kind` is VALUES or DEAD_LETTERS."""

    root: str
    file: ArchiveFile
    kind: str
    format: str
    schema: ValueSchema
    settings: Mapping[str, str]
    compression: str


def derive(work: Work) -> ArchiveFile | None:
    """Write the file; returns its description, or None if it has no records."""
    system, name = file_system(f"{work.root}/{work.file.path}", work.settings)
    table = pq.read_table(name, filesystem=system, schema=raw_schema(), partitioning=None)
    columns, good, bad = parse_all((value.as_py() for value in table["value"]), work.schema)
    if work.kind == VALUES:
        rows = table.take(pa.array(good, pa.int64()))
        for own, of in OWN.items():
            columns = columns.append_column(own, rows[of])
    else:
        rows = table.take(pa.array([number for number, _ in bad], pa.int64()))
        columns = rows.append_column("error", pa.array([why for _, why in bad], pa.string()))
    if not rows.num_rows:
        return None
    path = derived(work.file.path, work.kind, work.format)
    system, name = file_system(f"{work.root}/{path}", work.settings)
    system.create_dir(name.rpartition("/")[0], recursive=True)
    pq.write_table(columns, name, filesystem=system, compression=work.compression)
    ends = [pc.min_max(rows[column].cast(pa.int64())).as_py() for column in ("offset", "timestamp")]
    return ArchiveFile(
        path,
        rows.num_rows,
        system.get_file_info(name).size,
        ends[0]["min"],
        ends[0]["max"],
        ends[1]["min"] // 1000,
        ends[1]["max"] // 1000,
    )
