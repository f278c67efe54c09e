"""Messages in the form of Kafka's JSON converters, which the golden vectors state.

Shape: camelCase names; bytes and records in base64, ids in base64url; only fields of the version,
tagged ones only if not default; unknown tagged fields are stated apart from it.
"""

from __future__ import annotations

import base64
from typing import Any

from kwire.interpreter import is_default
from kwire.schema import Field, schema_of
from kwire.types import Array, Fixed, Sized, String, Uuid, WireType, uuid_from_str, uuid_to_str

Unknown = list[dict[str, Any]]


def camel_case(name: str) -> str:
    """Kafka's JSON name of an attribute."""
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


def to_json(message: Any, version: int) -> tuple[dict[str, Any], Unknown]:
    """Give a message's JSON form, and its unknown tagged fields with their paths."""
    unknown: Unknown = []
    return _struct_to_json(message, version, "", unknown), unknown


def _struct_to_json(message: Any, version: int, path: str, unknown: Unknown) -> dict[str, Any]:
    form = {}
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if version not in field.versions or (version in field.tagged and is_default(field, value)):
            continue
        name = camel_case(field.name)
        inner = f"{path}.{name}" if path else name
        form[name] = _to_json(field.type, value, version, inner, unknown)
    for tag, data in (message.unknown_tags or {}).items():
        unknown.append({"path": path, "tag": tag, "hex": data.hex()})
    return form


def _to_json(type_: WireType, value: Any, version: int, path: str, unknown: Unknown) -> Any:
    if value is None:
        return None
    if isinstance(type_, Array):
        return [
            _to_json(type_.element, element, version, f"{path}[{number}]", unknown)
            for number, element in enumerate(value)
        ]
    if type_ is Uuid:
        return uuid_to_str(value)
    if isinstance(type_, Sized) and type_ is not String:
        return base64.b64encode(value).decode()
    if isinstance(type_, type):
        return _struct_to_json(value, version, path, unknown)
    return value


def from_json(cls: type, form: dict[str, Any], unknown: Unknown) -> Any:
    """Make the message that a JSON form and unknown tagged fields state."""
    by_path: dict[str, dict[int, bytes]] = {}
    for entry in unknown:
        by_path.setdefault(entry["path"], {})[entry["tag"]] = bytes.fromhex(entry["hex"])
    return _struct_from_json(cls, form, "", by_path)


def _struct_from_json(
    cls: type, form: dict[str, Any], path: str, unknown: dict[str, dict[int, bytes]]
) -> Any:
    fields: dict[str, Field] = {camel_case(field.name): field for field in schema_of(cls).fields}
    values = {}
    for name, value in form.items():
        inner = f"{path}.{name}" if path else name
        values[fields[name].name] = _from_json(fields[name].type, value, inner, unknown)
    return cls(**values, unknown_tags=unknown.get(path))


def _from_json(type_: WireType, value: Any, path: str, unknown: dict[str, dict[int, bytes]]) -> Any:
    if value is None:
        return None
    if isinstance(type_, Array):
        return [
            _from_json(type_.element, element, f"{path}[{number}]", unknown)
            for number, element in enumerate(value)
        ]
    if type_ is Uuid:
        return uuid_from_str(value)
    if isinstance(type_, Fixed):
        return value
    if isinstance(type_, Sized):
        return value if type_ is String else base64.b64decode(value)
    return _struct_from_json(type_, value, path, unknown)
