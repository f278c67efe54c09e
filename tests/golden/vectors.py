"""Golden vectors: every message in every version, as Apache Kafka's own classes write it.

Each vector is decoded and compared with its JSON form, encoded back, and encoded again from the
JSON form; the bytes must be the same both times. `run` is what `make golden` calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kwire import interpreter
from kwire.codec import decode, encode
from kwire.errors import WireError
from kwire.header import request_header_version, response_header_version
from kwire.messages.internal import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    topic_messages,
)
from tests.golden.json_form import from_json, to_json
from tests.golden.recorded import DATA, read_lines
from tests.support.catalogue import all_messages, variants

TITLE = "message vectors"

Vector = dict[str, Any]


def run(folder: Path) -> tuple[int, int]:
    """Check all vectors in `folder`/vectors, print errors, and count passed and failed."""
    passed = failed = 0
    for vector in read_vectors(folder):
        problem = check(vector)
        if problem:
            failed += 1
            print(f"{vector['name']} v{vector['version']} {vector['kind']}: {problem}")
        else:
            passed += 1
    return passed, failed


def read_vectors(folder: Path = DATA) -> Iterator[Vector]:
    """Read the vectors in `folder`/vectors/*.jsonl."""
    for name in sorted({path.name.split(".")[0] for path in (folder / "vectors").iterdir()}):
        yield from read_lines(f"vectors/{name}.jsonl", folder)


def check(vector: Vector) -> str:
    """Describe the error in kwire's reading and writing of a vector, or ""."""
    # Two schemas changed their layout between the releases but not their version; data of 3.9.2 can only be read with
    # its own layout.
    classes = variants() if "variant" in vector else all_messages()
    cls, version = classes[vector["name"]], vector["version"]
    data = bytes.fromhex(vector["hex"])
    try:
        problem = _check_message(cls, version, data, vector)
        return problem or _check_surroundings(cls, version, data, vector)
    except WireError as error:
        return f"{type(error).__name__}: {error}"


def _check_message(cls: type, version: int, data: bytes, vector: Vector) -> str:
    unknown = vector.get("unknown", [])
    message = decode(cls, data, version)
    form, unknown_found = to_json(message, version)
    if form != vector["json"]:
        return f"decoded as {form}, not {vector['json']}"
    if _by_place(unknown_found) != _by_place(unknown):
        return f"unknown tags {unknown_found}, not {unknown}"
    stated = from_json(cls, vector["json"], unknown)
    for source, value in (("decoded", message), ("stated", stated)):
        encoded = encode(value, version)
        if encoded != data:
            return f"{source} message encoded as {encoded.hex()}, not {vector['hex']}"
    if interpreter.encode(stated, version) != data:
        return "the interpreter encodes it differently"
    if interpreter.decode(cls, data, version) != message:
        return "the interpreter decodes it differently"
    if decode(cls, memoryview(b"\0" + data), version, 1) != message:
        return "decoded differently from a view"
    return ""


def _check_surroundings(cls: type, version: int, data: bytes, vector: Vector) -> str:
    """Check the header version of a request or response, and the prefix of an internal record."""
    if "header" in vector:
        header_version = (
            request_header_version if vector["type"] == "request" else response_header_version
        )(vector["key"], version)
        if header_version != vector["header"]:
            return f"header version {header_version}, not {vector['header']}"
    if "prefix" in vector and "variant" not in vector:
        stored = vector["prefix"].to_bytes(2, "big") + data
        if vector["type"] == "coordinator-key":
            topic = "__consumer_offsets"
            if cls.__name__.startswith("TransactionLog"):
                topic = "__transaction_state"
            elif cls.__name__.startswith(("ShareSnapshot", "ShareUpdate")):
                topic = "__share_group_state"
            key = decode_key(stored, topic_messages(topic))
            if type(key) is not cls or encode_key(key) != stored:
                return f"stored key read as {key}"
        elif encode_value(decode_value(cls, stored), version) != stored:
            return "stored value differs"
    return ""


def _by_place(unknown: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return sorted((entry["path"], entry["tag"], entry["hex"]) for entry in unknown)
