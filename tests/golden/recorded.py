"""Reads the golden data: facts about Apache Kafka, and bytes written by it (see `data/README.md`).

Files are named without the suffix of their compression: `read_json("logdir/expected.json")` finds `expected.json`,
`expected.json.gz` or `expected.json.xz`. Another folder of the same layout may be used.
"""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
#: Suffix -> the function that converts a file's bytes to its content.
COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
}


def read_bytes(name: str, folder: Path = DATA) -> bytes:
    """The content of a file. Errors: FileNotFoundError."""
    for suffix, decompress in COMPRESSIONS.items():
        path = folder / f"{name}{suffix}"
        if path.exists():
            return decompress(path.read_bytes())
    raise FileNotFoundError(f"no {name} in {folder}, compressed or not")


def read_json(name: str, folder: Path = DATA) -> Any:
    """The content of a JSON file."""
    return json.loads(read_bytes(name, folder))


def read_lines(name: str, folder: Path = DATA) -> Iterator[Any]:
    """The values in a file with one JSON value a line."""
    return map(json.loads, read_bytes(name, folder).splitlines())


def log_directory(folder: Path = DATA) -> tarfile.TarFile:
    """The archive with the log directory; close it."""
    return tarfile.open(fileobj=io.BytesIO(read_bytes("logdir/logdir.tar", folder)))


def unpack_log_directory(target: Path, folder: Path = DATA) -> Path:
    """Unpack the log directory below `target`; return its path."""
    with log_directory(folder) as archive:
        archive.extractall(target, filter="data")
    return next(target.rglob("meta.properties")).parent
