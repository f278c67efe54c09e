"""The declaration language: a message is one class, with version ranges on its fields.

    @message(api_key=ApiKey.HEARTBEAT, kind="request", versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: str = field(String)
        group_instance_id: str | None = field(String, "3+", nullable="3+", default=None)

Attributes are in wire order. An object carries no version. A field that a version does not have is
set to its default when read; when written, it must have its default or be `ignorable`. The codecs of
interpreter.py and compiler.py are derived from this and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, dataclass_transform

from kwire.types import Array, WireType

MAX_VERSION = 32767
#: Fields that must not be shown if a message appears in a log: credentials and their proofs.
SECRET_FIELDS = frozenset({"auth_bytes", "hmac", "salted_password"})

T = TypeVar("T")


class _Absent:
    """Marks an argument that was not given, because None means null."""

    def __repr__(self) -> str:
        return "<default>"


ABSENT: Any = _Absent()


class VersionRange:
    """The versions from lowest to highest, both inclusive; empty if highest < lowest."""

    __slots__ = ("highest", "lowest")

    _known: ClassVar[dict[str, VersionRange]] = {}

    def __init__(self, lowest: int, highest: int) -> None:
        self.lowest = lowest
        self.highest = highest

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Read "3", "3-7", "3+" (no upper end) or "none"."""
        known = cls._known.get(text)
        if known is None:
            if text == "none":
                known = cls(0, -1)
            elif text.endswith("+"):
                known = cls(int(text[:-1]), MAX_VERSION)
            else:
                lowest, _, highest = text.partition("-")
                known = cls(int(lowest), int(highest or lowest))
            cls._known[text] = known
        return known

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def __repr__(self) -> str:
        if not self:
            return "none"
        if self.highest == MAX_VERSION:
            return f"{self.lowest}+"
        return f"{self.lowest}-{self.highest}" if self.highest > self.lowest else f"{self.lowest}"


ALL = VersionRange.parse("0+")
NONE = VersionRange.parse("none")


class Field:
    """One declared field; see field() for the meaning of each attribute."""

    __slots__ = (
        "default",
        "flexible",
        "ignorable",
        "name",
        "nullable",
        "tag",
        "tagged",
        "type",
        "versions",
    )

    def __init__(self, type_: WireType, versions: VersionRange, nullable: VersionRange) -> None:
        self.name = ""
        self.type = type_
        self.versions = versions
        self.nullable = nullable
        self.tag = -1
        self.tagged = NONE
        self.default: object = ABSENT
        self.ignorable = False
        self.flexible: VersionRange | None = None

    @property
    def is_struct(self) -> bool:
        return isinstance(self.type, type)

    @property
    def fresh_default(self) -> bool:
        """Whether each object needs its own default, because the default is mutable."""
        return self.default is ABSENT and (
            isinstance(self.type, Array) or (self.is_struct and not self.none_is_absent)
        )

    @property
    def none_is_absent(self) -> bool:
        """Whether None means a tagged struct that was not sent. If a struct is nullable, one not sent is an empty
        struct.
        """
        return self.tag >= 0 and not self.nullable

    def make_default(self) -> Any:
        """The value of an object's field if none is given."""
        if self.default is not ABSENT:
            return self.default
        if isinstance(self.type, Array):
            return []
        if isinstance(self.type, type):
            return None if self.none_is_absent else self.type()
        return self.type.zero


def field(
    type_: WireType,
    versions: str = "0+",
    *,
    nullable: str = "none",
    tag: int = -1,
    tagged: str | None = None,
    default: object = ABSENT,
    ignorable: bool = False,
    flexible: str | None = None,
) -> Any:
    """Declare a field of a message or struct.

    Shape: each of these is a range of versions: `versions` have the field, `nullable` allow null, `tagged` (same as
    `versions` if only `tag` is given) carry it as a tagged field; `flexible` overrides the message's range for this
    field. A value that a version cannot carry raises EncodeError, or is dropped if `ignorable`. A tagged struct that
    was not sent is None, and a struct equal to its defaults is not sent. If the struct is nullable, None is sent, and a
    struct that was not sent has its defaults.
    """
    declared = Field(type_, VersionRange.parse(versions), VersionRange.parse(nullable))
    declared.default = default
    if tag >= 0:
        declared.tag = tag
        declared.tagged = VersionRange.parse(versions if tagged is None else tagged)
    declared.ignorable = ignorable
    if flexible is not None:
        declared.flexible = VersionRange.parse(flexible)
    return declared


class Schema:
    """The declaration of a message or struct as a whole."""

    __slots__ = ("api_key", "fields", "flexible", "key_type", "kind", "name", "versions")

    def __init__(self, name: str, fields: tuple[Field, ...]) -> None:
        self.name = name
        self.fields = fields
        self.versions = ALL
        self.flexible = NONE
        self.kind = "struct"
        self.api_key: int | None = None
        self.key_type: int | None = None


class Struct:
    """The common part of declared classes: constructor, comparison, printing, unknown tagged fields."""

    __slots__ = ("unknown_tags",)
    __hash__ = None  # type: ignore[assignment]
    __kwire__: Schema

    unknown_tags: dict[int, bytes] | None

    def __init__(self, **values: object) -> None:
        # Replaced on first use, because writing 700 constructors at import would slow down startup.
        cls = type(self)
        type.__setattr__(cls, "__init__", _write_init(cls))
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        assert isinstance(other, Struct)
        return all(
            getattr(self, declared.name) == getattr(other, declared.name)
            for declared in self.__kwire__.fields
        ) and (self.unknown_tags or None) == (other.unknown_tags or None)

    def __repr__(self) -> str:
        values = [
            f"{f.name}={'[hidden]' if f.name in SECRET_FIELDS else repr(getattr(self, f.name))}"
            for f in self.__kwire__.fields
        ]
        if self.unknown_tags:
            values.append(f"unknown_tags={self.unknown_tags!r}")
        return f"{type(self).__name__}({', '.join(values)})"


def _write_init(cls: type[Struct]) -> Callable[..., None]:
    """Write the keyword-only constructor of a declared class."""
    names: dict[str, object] = {"ABSENT": ABSENT}
    parameters = ["self", "*"]
    body = []
    for number, declared in enumerate(cls.__kwire__.fields):
        name = declared.name
        if declared.fresh_default:
            parameters.append(f"{name}=ABSENT")
            names[f"default_{number}"] = list if isinstance(declared.type, Array) else declared.type
            value = f"default_{number}() if {name} is ABSENT else {name}"
        else:
            names[f"default_{number}"] = declared.make_default()
            parameters.append(f"{name}=default_{number}")
            value = name
        body.append(f"    self.{name} = {value}")
    parameters.append("unknown_tags=None")
    body.append("    self.unknown_tags = unknown_tags")
    source = f"def __init__({', '.join(parameters)}):\n" + "\n".join(body)
    exec(compile(source, f"<kwire:{cls.__name__}>", "exec"), names)
    written: Callable[..., None] = names["__init__"]  # type: ignore[assignment]
    return written


def _declare(cls: type[T]) -> type[T]:
    """Create the class again, with its fields as slots."""
    body = dict(vars(cls))
    fields = []
    for name, value in vars(cls).items():
        if type(value) is Field:
            value.name = name
            fields.append(value)
            del body[name]
    body.pop("__dict__", None)
    body.pop("__weakref__", None)
    body["__slots__"] = tuple(declared.name for declared in fields)
    body["__kwire__"] = Schema(cls.__name__, tuple(fields))
    return type(cls.__name__, (Struct,), body)


# field() is deliberately not declared as a field specifier: type checkers then take the call to it as the default, so
# that every argument of the constructor is optional.
@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a struct, for use within messages."""
    return _declare(cls)


@dataclass_transform(kw_only_default=True)
def message(
    *,
    kind: str,
    versions: str,
    flexible: str = "none",
    api_key: int | None = None,
    key_type: int | None = None,
) -> Callable[[type[T]], type[T]]:
    """Declare a message that can be encoded by itself.

    Shape: `kind` is request, response, header, coordinator-key, coordinator-value, metadata or
    data; `key_type` is the number at the start of a coordinator's record key; `api_key` is the key of
    the API, or of the KRaft or remote-log record.
    """

    def declare(cls: type[T]) -> type[T]:
        made = _declare(cls)
        schema = schema_of(made)
        schema.kind = kind
        schema.versions = VersionRange.parse(versions)
        schema.flexible = VersionRange.parse(flexible)
        schema.api_key = api_key
        schema.key_type = key_type
        return made

    return declare


def schema_of(cls: type) -> Schema:
    """The declaration of a message or struct class.

    Errors: TypeError if the class was not declared.
    """
    schema = cls.__dict__.get("__kwire__")
    if schema is None:
        raise TypeError(f"{cls.__name__} is not a declared message")
    declared: Schema = schema
    return declared
