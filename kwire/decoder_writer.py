"""Writes the source of decode functions; compiler.py explains why they are fast and safe, and describes their forms."""

from __future__ import annotations

import struct

from kwire.compiler_runtime import (
    FEW,
    LARGE_TAG_BYTES,
    MANY_TAGS,
    STEP_ELEMENTS,
    TAG_BYTES,
    unpackers,
)
from kwire.interpreter import NULL, NULL_IN_TAG, known_tags, min_size
from kwire.memory import answer_row, memory_of
from kwire.schema import Schema, schema_of
from kwire.source_writer import SourceWriter, has_records
from kwire.types import Array, Fixed, Records, Sized, String, Uuid, WireType


class DecoderWriter(SourceWriter):
    """Writes a decode function; `run` holds (code, target) of the fixed-size fields not yet read.

    Shape: with `steps`, it is a generator that reads leniently. With `most`, it refuses a message whose arrays have
    more elements in total; tagged fields are not counted.
    """

    def __init__(
        self,
        schema: Schema,
        version: int,
        from_view: bool,
        *,
        steps: bool = False,
        most: int | None = None,
    ) -> None:
        super().__init__(schema, version)
        self.tobytes = ".tobytes()" if from_view else ""
        self.from_view = from_view
        self.steps = steps
        self.most = most
        self.end = "end"
        self.message: type | None = None
        self.depth = 0  # the number of arrays around the current position

    def main(self, cls: type) -> str:
        self.message = cls
        self.lines.append(f"def decode(buf, pos, end{', room' if self.steps else ''}):")
        if self.steps:
            self.line("if False: yield")  # a generator even if there are no arrays
        if self.most is not None:
            self.line(f"left = {self.most}")
        if has_records(cls) and not self.from_view:
            self.line("view = memoryview(buf)")
        elif has_records(cls):
            self.line("view = buf")
        made = self.struct(cls)
        self.flush()
        self.line(f"return {made}, pos")
        return "decode"

    def flush(self) -> None:
        """Read the fields of the run with one call."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = [target for _, target in self.run]
        size = struct.calcsize(">" + codes)
        if codes == "B":
            self.line(f"{targets[0]} = buf[pos]")
        else:
            comma = "," if len(targets) == 1 else ""
            read = self.name(("unpack", codes), "U", struct.Struct(">" + codes).unpack_from)
            self.line(f"{', '.join(targets)}{comma} = {read}(buf, pos)")
        self.line(f"pos += {size}")
        self.run = []

    def struct(self, cls: type) -> str:
        """Write code that reads a struct, and return the name of the local that holds it."""
        made = self.fresh("o")
        self.line(f"{made} = new({self.name(cls, 'S', cls)})")
        schema = schema_of(cls)
        for declared in schema.fields:
            target = f"{made}.{declared.name}"
            if self.version in declared.versions and self.version not in declared.tagged:
                nullable = self.version in declared.nullable
                self.value(declared.type, target, self.is_flexible(declared), nullable)
            else:
                self.line(f"{target} = {self.default(declared)}")
        self.line(f"{made}.unknown_tags = None")
        if self.flexible:
            read, room = self.tag_function(cls), ""
            if self.steps:
                read, room = f"yield from {read}", ", room"
            if self.run:
                count = self.fresh("n")
                self.run.append(("B", count))
                self.flush()
                self.line(f"if {count}: pos = {read}({made}, buf, pos - 1, {self.end}{room})")
            else:
                self.line(f"if buf[pos]: pos = {read}({made}, buf, pos, {self.end}{room})")
                self.line("else: pos += 1")
        return made

    def value(
        self, type_: WireType, target: str, flexible: bool, nullable: bool, null: int = NULL
    ) -> None:
        if isinstance(type_, Fixed):
            self.run.append((type_.code, target))
        elif isinstance(type_, Sized):
            self.sized(type_, target, flexible, nullable)
        elif isinstance(type_, Array):
            self.array(type_, target, flexible, nullable)
        elif nullable:
            marker = self.fresh("n")
            self.run.append(("b", marker))
            self.flush()
            self.line(f"if {marker} == 1:")
            self.indent += 1
            made = self.struct(type_)
            self.flush()
            self.line(f"{target} = {made}")
            self.indent -= 1
            self.line(f"elif {marker} == {null}: {target} = None")
            self.line("else: raise Refused")
        else:
            made = self.struct(type_)
            self.line(f"{target} = {made}")

    def length(self, code: str, flexible: bool, wide: str = "read_uvarint") -> str:
        """Write code that reads a length or count; in flexible versions the local holds one more."""
        size = self.fresh("n")
        self.run.append(("B" if flexible else code, size))
        self.flush()
        if flexible:
            self.line(f"if {size} > 127:")
            if wide == "read_uvarint":
                # Most batches and metadata have lengths of two bytes: read them without a call.
                self.line(f"    if buf[pos] < 128: {size} += (buf[pos] << 7) - 128; pos += 1")
                self.line(f"    else: {size}, pos = {wide}(buf, pos - 1)")
            else:
                self.line(f"    {size}, pos = {wide}(buf, pos - 1)")
        return size

    def sized(self, type_: Sized, target: str, flexible: bool, nullable: bool) -> None:
        if type_ is String:
            size = self.length("h", flexible, "read_string_length")
        else:
            size = self.length("i", flexible)
        stop = self.fresh("e")
        if type_ is String and self.steps:
            value = f"lenient_string(buf[pos:{stop}])"
        elif type_ is String:
            value = f"buf[pos:{stop}]{self.tobytes}.decode()"
        else:
            value = f"view[pos:{stop}]" if type_ is Records else f"buf[pos:{stop}]{self.tobytes}"
        if self.steps and type_ is not String and type_ is not Records:
            self.line(f"if {size}{' - 1' if flexible else ''} > {self.end} - pos: raise Refused")
            self.line(f"room[0] -= {size}")
            self.line("if room[0] < 0: raise TooMuch")
        self.line(f"if {size} > {1 if flexible else 0}:")
        less_one = " - 1" if flexible else ""
        self.line(f"    {stop} = pos + {size}{less_one}; {target} = {value}; pos = {stop}")
        empty = "''" if type_ is String else "view[pos:pos]" if type_ is Records else "b''"
        self.line(f"elif {size if flexible else f'not {size}'}: {target} = {empty}")
        self.null(size, target, flexible, nullable)

    def null(self, size: str, target: str, flexible: bool, nullable: bool) -> None:
        if not nullable:
            self.line("else: raise Refused")
        elif flexible or self.steps:
            self.line(f"else: {target} = None")
        else:
            self.line(f"elif {size} == -1: {target} = None")
            self.line("else: raise Refused")

    def array(self, type_: Array, target: str, flexible: bool, nullable: bool) -> None:
        size = self.length("i", flexible)
        self.line(f"if {size} > {1 if flexible else 0}:")
        self.indent += 1
        if flexible:
            self.line(f"{size} -= 1")
        element = type_.element
        smallest = min_size(element, self.version, flexible)
        times = f" * {smallest}" if smallest > 1 else ""
        self.line(f"if {size}{times} > {self.end} - pos: raise Refused")
        if self.most is not None and self.end == "end":
            self.line(f"left -= {size}")
            self.line("if left < 0: raise Refused")
        if self.steps:
            assert self.message is not None
            each = 8 + memory_of(element, self.version) + answer_row(self.message, self.depth + 1)
            self.line(f"room[0] -= {size} * {each}")
            self.line("if room[0] < 0: raise TooMuch")
        if isinstance(element, Fixed) and element is not Uuid and self.steps:
            self.line(f"{target} = yield from unpack_steps({size}, '{element.code}', buf, pos)")
            self.line(f"pos += {size}{times}")
        elif isinstance(element, Fixed) and element is not Uuid:
            few = self.name(("few", element.code), "A", unpackers(element.code))
            self.line(f"if {size} < {FEW}: {target} = [*{few}[{size}](buf, pos)]")
            self.line(f"else: {target} = unpack_many({size}, '{element.code}', buf, pos)")
            self.line(f"pos += {size}{times}")
        else:
            items = self.fresh("a")
            self.line(f"{target} = {items} = []")
            if isinstance(element, type) and self.is_fixed(element) and not self.steps:
                self.fixed_structs(element, items, size)
                size = f"{size} - len({items})"
            if self.steps:
                number = self.fresh("i")
                self.line(f"for {number} in range({size}):")
                self.line(f"    if not {number} & {STEP_ELEMENTS - 1}: yield")
            else:
                self.line(f"for _ in range({size}):")
            self.indent += 1
            self.depth += 1
            if isinstance(element, type):
                item = self.struct(element)
            else:
                item = self.fresh("v")
                self.value(element, item, flexible, False)
            self.flush()
            self.line(f"{items}.append({item})")
            self.depth -= 1
            self.indent -= 1
        self.indent -= 1
        size = size.partition(" ")[0]
        self.line(f"elif {size}: {target} = []" if flexible else f"elif not {size}: {target} = []")
        self.null(size, target, flexible, nullable)

    def is_fixed(self, cls: type) -> bool:
        """Whether structs of this version have fields, all of them of fixed size."""
        sent = [
            declared
            for declared in schema_of(cls).fields
            if self.version in declared.versions and self.version not in declared.tagged
        ]
        return bool(sent) and all(isinstance(declared.type, Fixed) for declared in sent)

    def fixed_structs(self, cls: type, items: str, count: str) -> None:
        """Write code that reads structs of fixed size, up to the first that has tagged fields."""
        made, tags = self.fresh("o"), self.fresh("n")
        codes, targets, absent = "", [], []
        for declared in schema_of(cls).fields:
            target = f"{made}.{declared.name}"
            if self.version in declared.versions and self.version not in declared.tagged:
                assert isinstance(declared.type, Fixed)
                codes += declared.type.code
                targets.append(target)
            else:
                absent.append(f"{target} = {self.default(declared)}")
        if self.flexible:
            codes += "B"
            targets.append(tags)
        size = struct.calcsize(">" + codes)
        read = self.name(("iterate", codes), "I", struct.Struct(">" + codes).iter_unpack)
        comma = "," if len(targets) == 1 else ""
        new = f"{made} = new({self.name(cls, 'S', cls)})"
        self.line(new)
        self.line(f"for {', '.join(targets)}{comma} in {read}(buf[pos:pos + {count} * {size}]):")
        self.indent += 1
        if self.flexible:
            self.line(f"if {tags}: break")
        for statement in absent:
            self.line(statement)
        self.line(f"{made}.unknown_tags = None")
        self.line(f"{items}.append({made})")
        self.line(new)
        self.indent -= 1
        self.line(f"pos += len({items}) * {size}")

    def tag_function(self, cls: type) -> str:
        """Write a function that reads the tagged fields of a struct, unless there are none."""
        known = known_tags(schema_of(cls))
        if not known:
            return "read_unknown_tags_steps" if self.steps else "read_unknown_tags"
        name = self.tag_functions.get(cls)
        if name is not None:
            return name
        name = self.tag_functions[cls] = f"read_tags{len(self.tag_functions)}"
        outer, outer_indent, outer_end, outer_run = self.lines, self.indent, self.end, self.run
        self.lines, self.indent, self.end, self.run = [], 1, "stop", []
        self.lines.append(f"def {name}(o, buf, pos, end{', room' if self.steps else ''}):")
        self.line("count, pos = read_uvarint(buf, pos)")
        self.line("if count * 2 > end - pos: raise Refused")
        if self.steps:
            self.line(f"room[0] -= count * {TAG_BYTES}")
            self.line("if room[0] < 0: raise TooMuch")
            self.line("for number in range(count):")
            self.line(f"    if not number & {STEP_ELEMENTS - 1}: yield")
        else:
            self.line(f"if count > {MANY_TAGS}: raise Refused")
            self.line("for _ in range(count):")
        self.indent += 1
        self.line("tag, pos = read_uvarint(buf, pos)")
        self.line("size, pos = read_uvarint(buf, pos)")
        self.line("stop = pos + size")
        self.line("if stop > end: raise Refused")
        word = "if"
        for tag, declared in sorted(known.items()):
            self.line(f"{word} tag == {tag}:")
            self.indent += 1
            if self.version in declared.tagged:
                nullable = self.version in declared.nullable
                self.value(declared.type, f"o.{declared.name}", True, nullable, NULL_IN_TAG)
                self.flush()
                self.line("if pos != stop: raise Refused")
            else:
                self.line("raise Refused")
            self.indent -= 1
            word = "elif"
        self.line("else:")
        if self.steps:
            self.line("    room[0] -= size")
            self.line("    if room[0] < 0: raise TooMuch")
        else:
            self.line(f"    if size > {LARGE_TAG_BYTES}: raise Refused")
        self.line("    if o.unknown_tags is None: o.unknown_tags = {}")
        self.line("    o.unknown_tags[tag] = bytes(buf[pos:stop])")
        self.line("    pos = stop")
        self.indent -= 1
        self.line("return pos")
        self.finish_function(outer, outer_indent)
        self.end, self.run = outer_end, outer_run
        return name
