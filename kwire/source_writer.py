"""Python source under construction: the common part of the writers of encoders and decoders."""

from __future__ import annotations

from typing import Any

from kwire.compiler_runtime import RUNTIME
from kwire.schema import ABSENT, Field, Schema, schema_of
from kwire.types import Array, Records, WireType


def has_records(cls: type) -> bool:
    """Whether the message, or a struct in it, has a field of records."""
    return any(_type_has_records(declared.type) for declared in schema_of(cls).fields)


def _type_has_records(type_: WireType) -> bool:
    if isinstance(type_, Array):
        return _type_has_records(type_.element)
    return has_records(type_) if isinstance(type_, type) else type_ is Records


class SourceWriter:
    """Source text under construction, and the objects that it refers to by name."""

    def __init__(self, schema: Schema, version: int) -> None:
        self.schema = schema
        self.version = version
        self.flexible = version in schema.flexible
        self.lines: list[str] = []
        self.indent = 1
        self.names: dict[str, Any] = dict(RUNTIME)
        self.named: dict[Any, str] = {}
        self.counter = 0
        self.run: list[tuple[str, str]] = []
        self.tag_functions: dict[type, str] = {}
        self.finished: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def fresh(self, stem: str) -> str:
        """Return a local name that has not been used before."""
        self.counter += 1
        return f"{stem}{self.counter}"

    def name(self, key: Any, stem: str, value: Any) -> str:
        """Return the global name of an object; the same key always gets the same name."""
        known = self.named.get(key)
        if known is None:
            known = self.named[key] = f"{stem}{len(self.named)}"
            self.names[known] = value
        return known

    def is_flexible(self, declared: Field) -> bool:
        return self.version in (
            self.schema.flexible if declared.flexible is None else declared.flexible
        )

    def default(self, declared: Field) -> str:
        """Return an expression for the default of a field."""
        if declared.default is ABSENT:
            if isinstance(declared.type, Array):
                return "[]"
            if isinstance(declared.type, type) and declared.tag < 0:
                return self.name(declared.type, "S", declared.type) + "()"
        value = declared.make_default()
        if isinstance(value, int | str | None):
            return repr(value)
        return self.name(("default", repr(value)), "D", value)

    def finish_function(self, outer: list[str], outer_indent: int) -> None:
        self.finished.append("\n".join(self.lines))
        self.lines, self.indent = outer, outer_indent

    def compile(self, main: str) -> Any:
        source = "\n\n".join([*self.finished, "\n".join(self.lines)])
        title = f"<kwire:{self.schema.name}_v{self.version}>"
        exec(compile(source, title, "exec"), self.names)
        return self.names[main]
