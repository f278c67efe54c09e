"""Fuzz target: any bytes as any message are read, or refused with one typed error.

Run: python -m tests.fuzz.fuzz_codec [libFuzzer options] [corpus directories]
Needs atheris, which is not among the development dependencies (no wheels for every Python).
The first two bytes choose message and version. What is read is written and read again; compiled
codecs and the interpreter must agree throughout.
"""

from __future__ import annotations

import sys

from kwire import interpreter
from kwire.codec import decode, encode
from kwire.errors import WireError
from kwire.header import decode_request_header
from kwire.schema import schema_of
from tests.support.catalogue import all_versions

PAIRS = all_versions()


def fuzz_one(data: bytes) -> None:
    """Run one input. Errors: everything except a WireError with a position is a finding."""
    choice, data = int.from_bytes(data[:2], "big"), data[2:]
    cls, version = PAIRS[choice % len(PAIRS)]
    try:
        decode_request_header(data)
    except WireError:
        pass
    try:
        message = decode(cls, data, version)
    except WireError as error:
        check_error(error, cls, version, data)
        return
    written = encode(message, version)
    # By their bytes, because a float that is not a number equals nothing.
    if encode(interpreter.decode(cls, data, version), version) != written:
        raise AssertionError("the interpreter reads it differently")
    if interpreter.encode(message, version) != written:
        raise AssertionError("the interpreter writes it differently")
    if encode(decode(cls, memoryview(written), version), version) != written:
        raise AssertionError("what was written is read differently")


def check_error(error: WireError, cls: type, version: int, data: bytes) -> None:
    """The error has a known type and a position."""
    if type(error) is WireError:
        raise AssertionError(f"only the compiled decoder refuses it: {error}")
    known = (error.api, error.version) == (schema_of(cls).name, version)
    if not known or not 0 <= error.offset <= len(data):
        raise AssertionError(f"does not say where: {error}")


def main() -> None:
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
