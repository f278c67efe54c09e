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

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..manifest import ArchiveFile
from ..schemas.values import ValueSchema, parse_all
from .place import DEAD_LETTERS, VALUES, raw_schema
from .stores import file_system

#: The parts of a file's name: topic and partition, the first and the last offset.
OFFSETS = re.compile(r"(?P<place>.+-\d+)-(?P<first>\d{20})-(?P<last>\d{20})-\w+\.parquet")
#: The columns other than those of the values -> the archive's columns.
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
    """The columns of a table of values, or of dead letters."""
    if kind == DEAD_LETTERS:
        return raw_schema().append(pa.field("error", pa.string()))
    own = [pa.field(name, raw_schema().field(of).type) for name, of in OWN.items()]
    return pa.schema([*schema.fields(), *own])


def is_part(path: str, of: str) -> bool:
    """Whether a file, by its name, has some of the records that are in another one; `of` replaces it."""
    (folder, _, name), (other_folder, _, other) = path.rpartition("/"), of.rpartition("/")
    part, whole = OFFSETS.fullmatch(name), OFFSETS.fullmatch(other)
    if part is None or whole is None or (folder, part["place"]) != (other_folder, whole["place"]):
        return False
    return whole["first"] <= part["first"] and part["last"] <= whole["last"]


class Work(NamedTuple):
    """One file of an archive at `root`, and what to make of it; `kind` is VALUES or DEAD_LETTERS.

    Its records before the offset `since` were parsed before: `sources` are the files of the same kind that have them.
    """

    root: str
    file: ArchiveFile
    kind: str
    format: str
    schema: ValueSchema
    settings: Mapping[str, str]
    compression: str
    since: int = 0
    sources: tuple[str, ...] = ()


def derive(work: Work) -> ArchiveFile | None:
    """Write the file; returns its description, or None if it has no records."""
    tables = [_read(work, path) for path in work.sources]
    if work.file.last_offset >= work.since:
        tables.append(_parsed(work))
    columns = _joined(tables, columns_of(work.kind, work.schema))
    if not columns.num_rows:
        return None
    path = derived(work.file.path, work.kind, work.format)
    system, name = file_system(f"{work.root}/{path}", work.settings)
    system.create_dir(name.rpartition("/")[0], recursive=True)
    pq.write_table(columns, name, filesystem=system, compression=work.compression)
    prefix = "_" if work.kind == VALUES else ""
    ends = [
        pc.min_max(columns[f"{prefix}{column}"].cast(pa.int64())).as_py()
        for column in ("offset", "timestamp")
    ]
    return ArchiveFile(
        path,
        columns.num_rows,
        system.get_file_info(name).size,
        ends[0]["min"],
        ends[0]["max"],
        ends[1]["min"] // 1000,
        ends[1]["max"] // 1000,
    )


def _read(work: Work, path: str) -> pa.Table:
    system, name = file_system(f"{work.root}/{path}", work.settings)
    return pq.read_table(name, filesystem=system, partitioning=None)


def _joined(tables: Sequence[pa.Table], newest: pa.Schema) -> pa.Table:
    """The records of all, with the columns of all; types are those of the newest schema."""
    joined = pa.concat_tables(tables, promote_options="permissive")
    for number, name in enumerate(joined.column_names):
        if name in newest.names:
            wanted = newest.field(name)
            joined = joined.set_column(number, wanted, joined.column(number).cast(wanted.type))
    return joined


def _parsed(work: Work) -> pa.Table:
    """The records of the archive's file that fit the schema, or those that do not, from `since` on."""
    system, name = file_system(f"{work.root}/{work.file.path}", work.settings)
    table = pq.read_table(name, filesystem=system, schema=raw_schema(), partitioning=None)
    table = table.filter(pc.field("offset") >= work.since)
    values, keys = ((one.as_py() for one in table[name]) for name in ("value", "key"))
    columns, good, bad = parse_all(values, work.schema, keys)
    if work.kind == VALUES:
        rows = table.take(pa.array(good, pa.int64()))
        for own, of in OWN.items():
            columns = columns.append_column(own, rows[of])
    else:
        rows = table.take(pa.array([number for number, _ in bad], pa.int64()))
        columns = rows.append_column("error", pa.array([why for _, why in bad], pa.string()))
    return columns
