"""Messages in the form of Kafka's JSON converters, without secrets.

Shape: names as in Kafka's message definitions, such as "groupId"; bytes in base64, ids as Kafka prints them; only fields that the version
has, and tagged ones only if they are not the default. Of records there is only the size, as in Kafka's request log.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from kwire.interpreter import is_default
from kwire.schema import SECRET_FIELDS, schema_of
from kwire.server.config.tables import is_password
from kwire.types import Array, Records, Sized, String, Uuid, WireType, uuid_to_str

HIDDEN = "[hidden]"
#: Words in the names of unknown settings that mark them as secret.
SECRET_WORDS = ("password", "secret", "credential", "jaas.config", "private.key")


def camel_case(name: str) -> str:
    """Kafka's JSON name of an attribute."""
    first, *others = name.split("_")
    return first + "".join(other[:1].upper() + other[1:] for other in others)


def to_json(
    message: Any, version: int, *, records: Callable[[Any], Any] | None = None
) -> dict[str, Any]:
    """A message or struct in JSON, its secrets hidden. Shape: `records` gives the form of records in place of their size."""
    form: dict[str, Any] = {}
    for field in schema_of(type(message)).fields:
        value = getattr(message, field.name)
        if version not in field.versions or (version in field.tagged and is_default(field, value)):
            continue
        name = camel_case(field.name)
        if field.type is Records and records is not None:
            form[name] = None if value is None else records(value)
        elif field.type is Records:
            form[f"{name}SizeInBytes"] = None if value is None else len(value)
        elif value and (field.name in SECRET_FIELDS or _is_secret(message, field.name)):
            form[name] = HIDDEN
        else:
            form[name] = _value(field.type, value, version, records)
    return form


def _value(type_: WireType, value: Any, version: int, records: Callable[[Any], Any] | None) -> Any:
    if value is None:
        return None
    if isinstance(type_, Array):
        return [_value(type_.element, each, version, records) for each in value]
    if type_ is Uuid:
        return uuid_to_str(value)
    if isinstance(type_, Sized) and type_ is not String:
        return base64.b64encode(value).decode()
    if isinstance(type_, type):
        return to_json(value, version, records=records)
    return value


def _is_secret(struct: Any, field: str) -> bool:
    """Whether a field is the value of a setting that is a password."""
    if field != "value":
        return False
    setting = getattr(struct, "name", None)
    return isinstance(setting, str) and (
        is_password(setting) or any(word in setting.lower() for word in SECRET_WORDS)
    )
