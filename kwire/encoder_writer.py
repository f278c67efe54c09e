"""Writes the source of encode functions; compiler.py explains why they are fast."""

from __future__ import annotations

import struct

from kwire.compiler_runtime import FEW, SMALL_RECORDS_BYTES, STEP_ELEMENTS, packers
from kwire.interpreter import NULL, NULL_IN_TAG, known_tags
from kwire.schema import Field, Schema, schema_of
from kwire.source_writer import SourceWriter, has_records
from kwire.types import Array, Fixed, Records, Sized, String, Uuid, WireType


class EncoderWriter(SourceWriter):
    """Writes an encode function; `run` holds (code, expression) of the fixed-size fields to write.

    Shape: with `steps` it is a generator. Arrays in tagged fields are written in one step.
    """

    def __init__(self, schema: Schema, version: int, *, steps: bool = False) -> None:
        super().__init__(schema, version)
        self.steps = steps
        self.in_tags = False

    def main(self, cls: type) -> str:
        self.lines.append("def encode(message):")
        self.line("parts = []")
        if self.steps:
            self.line("out = []")
            self.line("if False: yield")  # a generator even if there are no arrays
            self.struct(cls, "message")
            self.flush()
            self.line("gather(parts, out)")
            self.line("return out")
            return "encode"
        with_records = has_records(cls)
        if with_records:
            self.line("out = []")
        self.struct(cls, "message")
        self.flush()
        if with_records:
            self.line("out.append(join(parts))")
        self.line("return out" if with_records else "return join(parts)")
        return "encode"

    def pack(self, *last: tuple[str, str]) -> str:
        """Return an expression that packs the run, and perhaps one more field, with one call."""
        codes = "".join(code for code, _ in [*self.run, *last])
        values = [value for _, value in [*self.run, *last] if value]
        if not values:
            return self.name(("zeros", len(codes)), "Z", bytes(len(codes)))
        write = self.name(("pack", codes), "P", struct.Struct(">" + codes).pack)
        return f"{write}({', '.join(values)})"

    def flush(self) -> None:
        if self.run:
            self.line(f"parts.append({self.pack()})")
            self.run = []

    def length(self, code: str, size: str, flexible: bool, wide: str = "uvarint") -> None:
        """Write the run, then a length or count; in flexible versions `size` is one more."""
        if not flexible:
            self.run.append((code, size))
            self.flush()
            return
        narrow = self.pack(("B", size))
        before = f"{self.pack()} + " if self.run else ""
        if wide == "uvarint":
            # Most batches and metadata have lengths of two bytes: write them without a call.
            two = self.pack(("B", f"{size} & 127 | 128"), ("B", f"{size} >> 7"))
            wide = f"{two} if {size} < 16384 else {before}{wide}({size})"
        else:
            wide = f"{before}{wide}({size})"
        self.line(f"parts.append({narrow} if {size} < 128 else {wide})")
        self.run = []

    def struct(self, cls: type, source: str) -> None:
        schema = schema_of(cls)
        tagged = []
        for declared in schema.fields:
            value = f"{source}.{declared.name}"
            if self.version in declared.tagged:
                tagged.append(declared)
            elif self.version in declared.versions:
                nullable = self.version in declared.nullable
                self.value(declared.type, value, self.is_flexible(declared), nullable)
            elif not declared.ignorable:
                self.line(f"if {self.differs(declared, value)}: raise Refused")
        if not self.flexible:
            self.line(f"if {source}.unknown_tags: raise Refused")
            return
        absent = [f"{source}.unknown_tags is None"]
        absent += [
            self.differs(declared, f"{source}.{declared.name}", "not") for declared in tagged
        ]
        write = self.tag_function(cls, tagged)
        no_tags = self.pack(("x", ""))
        before = f"{self.pack()} + " if self.run else ""
        self.line(f"if {' and '.join(absent)}: parts.append({no_tags})")
        self.line(f"else: parts.append({before}{write}({source}))")
        self.run = []

    def differs(self, declared: Field, value: str, negate: str = "") -> str:
        """Return a condition that the value is not the default or, with `negate`, that it is."""
        if declared.is_struct:
            if declared.default is None:
                return f"{value} is None" if negate else f"{value} is not None"
            assert isinstance(declared.type, type)
            default = self.name(declared.type, "S", declared.type) + "()"
            if declared.none_is_absent:
                same = f"({value} is None or {value} == {default})"
                return same if negate else f"not {same}"
            return f"{value} {'==' if negate else '!='} {default}"
        default = self.default(declared)
        if default == "None":
            return f"{value} is None" if negate else f"{value} is not None"
        if isinstance(declared.type, Array) and default == "[]":
            # None is not the default either, so it must not be dropped silently.
            same = f"(not {value} and {value} is not None)"
            return same if negate else f"({value} or {value} is None)"
        return f"{value} {'==' if negate else '!='} {default}"

    def value(
        self, type_: WireType, value: str, flexible: bool, nullable: bool, null: int = NULL
    ) -> None:
        if isinstance(type_, Fixed):
            if type_ is Uuid:
                self.line(f"if len({value}) != 16: raise Refused")
            self.run.append((type_.code, value))
        elif isinstance(type_, Sized):
            self.sized(type_, value, flexible, nullable)
        elif isinstance(type_, Array):
            self.array(type_, value, flexible, nullable)
        else:
            self.nested(type_, value, nullable, null)

    def nested(self, cls: type, value: str, nullable: bool, null: int) -> None:
        made = self.fresh("o")
        self.line(f"{made} = {value}")
        if not nullable:
            self.struct(cls, made)
            return
        self.flush()
        self.line(f"if {made} is None: parts.append({struct.pack('b', null)!r})")
        self.line("else:")
        self.indent += 1
        self.run.append(("b", "1"))
        self.struct(cls, made)
        self.flush()
        self.indent -= 1

    def sized(self, type_: Sized, value: str, flexible: bool, nullable: bool) -> None:
        data, size = self.fresh("s"), self.fresh("n")
        more = " + 1" if flexible else ""
        encoded = ".encode()" if type_ is String else ""
        if nullable:
            self.line(f"{data} = {value}")
            self.line(f"if {data} is None: {size} = {0 if flexible else -1}")
            encoding = f"{data} = {data}{encoded}; " if encoded else ""
            self.line(f"else: {encoding}{size} = len({data}){more}")
        else:
            self.line(f"{data} = {value}{encoded}")
            self.line(f"{size} = len({data}){more}")
        if type_ is String:
            self.length("h", size, flexible, "string_length")
        else:
            self.length("i", size, flexible)
        if type_ is Records:
            self.line(f"if {size} > {SMALL_RECORDS_BYTES + 1}:")
            self.line(f"    out.append(join(parts)); out.append({data}); parts = []")
            self.line(f"elif type({data}) is bytes: parts.append({data})")
            self.line(f"elif {size} > 0: parts = put_small_records(parts, out, {data})")
        elif nullable:
            self.line(f"if {size} > 0: parts.append({data})")
        else:
            self.line(f"parts.append({data})")

    def array(self, type_: Array, value: str, flexible: bool, nullable: bool) -> None:
        items, size = self.fresh("a"), self.fresh("n")
        more = " + 1" if flexible else ""
        self.line(f"{items} = {value}")
        if nullable:
            self.line(f"if {items} is None: {size} = {0 if flexible else -1}; {items} = ()")
            self.line(f"else: {size} = len({items}){more}")
        else:
            self.line(f"{size} = len({items}){more}")
        element = type_.element
        self.length("i", size, flexible)
        if isinstance(element, Fixed) and element is not Uuid:
            few = self.name(("few", element.code), "A", packers(element.code))
            self.line(f"if {items}:")
            count = f"len({items})"
            self.line(f"    if {count} < {FEW}: parts.append({few}[{count}](*{items}))")
            self.line(f"    else: parts.append(pack_many('{element.code}', {items}))")
            return
        item = self.fresh("v")
        if self.steps and not self.in_tags:
            number = self.fresh("i")
            self.line(f"for {number}, {item} in enumerate({items}):")
            self.line(f"    if not {number} & {STEP_ELEMENTS - 1}:")
            self.line("        gather(parts, out)")
            self.line("        yield")
        else:
            self.line(f"for {item} in {items}:")
        self.indent += 1
        if isinstance(element, type):
            self.struct(element, item)
        else:
            self.value(element, item, flexible, False)
        self.flush()
        self.indent -= 1

    def tag_function(self, cls: type, tagged: list[Field]) -> str:
        """Write a function that returns the tagged fields of a struct as bytes."""
        if not tagged and not known_tags(schema_of(cls)):
            return "unknown_tag_section"
        name = self.tag_functions.get(cls)
        if name is not None:
            return name
        name = self.tag_functions[cls] = f"tags{len(self.tag_functions)}"
        outer, outer_indent, outer_run = self.lines, self.indent, self.run
        outer_in_tags, self.in_tags = self.in_tags, True
        self.lines, self.indent, self.run = [], 1, []
        self.lines.append(f"def {name}(o):")
        self.line("found = {}")
        for declared in tagged:
            value = f"o.{declared.name}"
            self.line(f"if {self.differs(declared, value)}:")
            self.indent += 1
            self.line("parts = []")
            nullable = self.version in declared.nullable
            self.value(declared.type, value, True, nullable, NULL_IN_TAG)
            self.flush()
            self.line(f"found[{declared.tag}] = join(parts)")
            self.indent -= 1
        known = frozenset(known_tags(schema_of(cls)))
        self.line(f"return tag_section(found, o.unknown_tags, {self.name(known, 'K', known)})")
        self.finish_function(outer, outer_indent)
        self.run, self.in_tags = outer_run, outer_in_tags
        return name
