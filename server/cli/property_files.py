"""The client properties of a command, from `-X KEY=VALUE` and from files such as those of Apache Kafka's tools."""

from __future__ import annotations

from collections.abc import Iterable

from ..client.properties import KNOWN, UsageError


def read_properties(
    files: Iterable[str], pairs: Iterable[tuple[str, str]]
) -> tuple[dict[str, str], list[str]]:
    """The properties of files and of the command line, which takes precedence, and keys of files without effect.

    Errors: UsageError for a file that cannot be read, and for a key of the command line without effect.
    """
    result: dict[str, str] = {}
    for file in files:
        result |= read_file_of_properties(file)
    idle = sorted(result.keys() - KNOWN)
    for key in idle:
        del result[key]
    for key, value in pairs:
        if key not in KNOWN:
            raise UsageError(f"-X {key}: no such property{nearest(key)}")
        result[key] = value
    return result, idle


def read_file_of_properties(file: str) -> dict[str, str]:
    """The properties of a file. Errors: UsageError."""
    from ..config.properties import PropertiesError, read_properties

    try:
        return read_properties(file)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    except PropertiesError as error:
        raise UsageError(str(error)) from None


def nearest(key: str) -> str:
    """A hint at the property that was probably intended, or an empty string."""
    import difflib

    found = difflib.get_close_matches(key[:200], KNOWN, 1)
    return f"; did you mean {found[0]}?" if found else ""
