"""All declared messages, found by walking kwire.messages."""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module

import kwire.messages
import kwire.messages.internal
from kwire.schema import schema_of

VARIANTS_MODULE = "kwire.messages.variants"


def _messages_of(module_name: str) -> list[type]:
    return [
        value
        for value in vars(import_module(module_name)).values()
        if isinstance(value, type)
        and value.__module__ == module_name
        and "__kwire__" in vars(value)
        and schema_of(value).kind != "struct"
    ]


@cache
def all_messages() -> dict[str, type]:
    """Every message by its name, without the variants."""
    found: dict[str, type] = {}
    for package in (kwire.messages, kwire.messages.internal):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if module.ispkg or module.name == VARIANTS_MODULE:
                continue
            for cls in _messages_of(module.name):
                assert cls.__name__ not in found, cls
                found[cls.__name__] = cls
    return found


@cache
def variants() -> dict[str, type]:
    """The layouts of 3.9.2 that 4.3.0 changed under the same version, by name."""
    return {cls.__name__: cls for cls in _messages_of(VARIANTS_MODULE)}


def all_versions() -> list[tuple[type, int]]:
    """Every message with each of its versions, including the variants."""
    classes = [*all_messages().values(), *variants().values()]
    return [
        (cls, version)
        for cls in classes
        for version in range(schema_of(cls).versions.lowest, schema_of(cls).versions.highest + 1)
    ]
