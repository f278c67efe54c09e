"""The response that carries one error for a whole request, derived from the declarations of both messages.

The error goes into the response's own error code. If it has none, its rows have the error: one for each row of the request,
with the same names, ids and partitions. `SPECIAL` has what Apache Kafka does otherwise. Source: getErrorResponse of each
request (Java).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.api import ApiKey, request_class, response_class
from kwire.schema import Field, VersionRange, schema_of
from kwire.types import Array, Int32, Sized, String, WireType

from ..coordinator.group.share.sentences import sentence
from ..turns import Steps, exhaust

if TYPE_CHECKING:
    from kwire.errors import ErrorCode

ERROR = ("error_code", "partition_error_code")
#: The fields that say what a row is about: those with different names in requests and responses, and the others.
NAME = ("name", "topic", "topic_name", "user")
PARTITION = ("partition", "partition_index", "partition_id", "index")
ROLES = {
    **dict.fromkeys(NAME, "name"),
    **dict.fromkeys(PARTITION, "partition"),
    **{
        each: each
        for each in (
            "entity",
            "group_id",
            "key",
            "producer_id",
            "resource_name",
            "resource_type",
            "topic_id",
            "transactional_id",
        )
    },
}
#: The number of rows between two steps.
ROWS_IN_STEP = 64


class Special(NamedTuple):
    """What the declarations of an API do not say.

    Shape: `rows` are the versions with rows, instead of those without an error code of their own. `arrays` are the
    arrays of the request whose rows are answered, in order, instead of all. `copied` are the fields that the response
    has from the request. `values` are those of fields, at any depth; a function makes one of the error, and None is for versions
    that allow it. Names that are null are empty in the response if `empty_names`. `merged` rows are answered once for each name
    and number. Requests that are not `answered` get no response.
    """

    rows: str | None = None
    arrays: tuple[str, ...] = ()
    copied: tuple[str, ...] = ()
    values: Mapping[str, Any] = {}
    empty_names: bool = False
    merged: bool = False
    answered: bool = True


ORDINARY = Special()
BOTH = "0+"
NO_MESSAGE = {"error_message": None}
OF_SHARE_STATE = Special(values={"error_message": attrgetter("name")})
OF_SHARE_OFFSETS = Special(values={"error_message": sentence})

SPECIAL: Mapping[int, Special] = {
    ApiKey.PRODUCE: Special(values={"base_offset": -1}, answered=False),
    ApiKey.FETCH: Special("0-12", ("topics",), ("session_id",), {"high_watermark": -1}),
    ApiKey.METADATA: Special(BOTH, empty_names=True),
    ApiKey.LEADER_AND_ISR: Special(BOTH),
    ApiKey.STOP_REPLICA: Special(BOTH),
    ApiKey.OFFSET_FETCH: Special(values={"committed_offset": -1}),
    ApiKey.FIND_COORDINATOR: Special(values={"node_id": -1, "port": -1}),
    ApiKey.JOIN_GROUP: Special(values={"protocol_name": None}),
    ApiKey.CREATE_TOPICS: Special(values=NO_MESSAGE),
    ApiKey.DELETE_RECORDS: Special(values={"low_watermark": -1}),
    ApiKey.INIT_PRODUCER_ID: Special(values={"producer_epoch": -1}),
    ApiKey.CREATE_ACLS: Special(values=NO_MESSAGE),
    ApiKey.DELETE_ACLS: Special(values=NO_MESSAGE),
    ApiKey.ALTER_CONFIGS: Special(values=NO_MESSAGE),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Special(merged=True),
    # Before version 3 there is no field for the error, and no directory is listed.
    ApiKey.DESCRIBE_LOG_DIRS: Special("none"),
    ApiKey.ELECT_LEADERS: Special(BOTH, values=NO_MESSAGE),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Special(values=NO_MESSAGE),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Special(
        BOTH, copied=("allow_replication_factor_change",)
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: Special(values={**NO_MESSAGE, "entries": None}),
    ApiKey.ALTER_CLIENT_QUOTAS: Special(values=NO_MESSAGE),
    # There is a row for each user, but it does not name the user.
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: Special(BOTH, values={**NO_MESSAGE, "user": ""}),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Special(
        arrays=("upsertions", "deletions"), values=NO_MESSAGE, merged=True
    ),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: OF_SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE: OF_SHARE_STATE,
    ApiKey.WRITE_SHARE_GROUP_STATE: OF_SHARE_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE: OF_SHARE_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: OF_SHARE_STATE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: OF_SHARE_OFFSETS,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: OF_SHARE_OFFSETS,
}


def refused(api_key: int, version: int, request: Any, error: ErrorCode) -> Steps[Any]:
    """Make the response that carries an error for a whole request, in steps.

    Shape: None if the request gets no response; also if it was not kept (`request` is None), and the response has its rows
    or is special.
    """
    special = SPECIAL.get(api_key, ORDINARY)
    plan = _plan(api_key, version)
    if not special.answered or (request is None and (plan.arrays or special is not ORDINARY)):
        return None
    return (yield from _made(plan, request, error))


def refused_in_rows(api_key: int, version: int, request: Any, error: ErrorCode) -> Any:
    """Make a response with the error in the innermost rows that name what the request names, and nowhere else.

    Shape: without rows if the API does not answer by the rows of the request.
    """
    return exhaust(_made(_plan(api_key, version, True), request, error))


# From declarations


class Level(NamedTuple):
    """An array of the request on the way to the rows. Shape: `copies` are pairs of the response's and the request's field;
    the latter is empty if the elements are the values themselves.
    """

    array: str
    copies: tuple[tuple[str, str], ...]


class RowSource(NamedTuple):
    """Where the request has rows; and how the rows within them are made, if these have the error."""

    path: tuple[Level, ...]
    inner: Plan | None


class Plan(NamedTuple):
    """How a response, or a row of it, is made in one version.

    Shape: `values` are those that are the same in all rows, without the error, and `of_error` those that are functions of it.
    `arrays` are those of a response, with their names; the plan of an array's rows has `sources`, and is called `field`.
    """

    kind: type[Any]
    field: str
    values: dict[str, Any]
    of_error: dict[str, Any]
    copied: tuple[str, ...]
    arrays: tuple[Plan, ...]
    sources: tuple[RowSource, ...]
    special: Special


@cache
def _plan(api_key: int, version: int, only_rows: bool = False) -> Plan:
    special = SPECIAL.get(api_key, ORDINARY)
    kind, asked = response_class(api_key), request_class(api_key)
    plan = _constants(kind, "", version, special)
    if only_rows:
        has_rows = True
    elif special.rows is None:
        has_rows = not _has_error(kind, version)
    else:
        has_rows = version in VersionRange.parse(special.rows)
    if not has_rows:
        return plan
    arrays = _rows(kind, asked, version, special, only_rows)
    if only_rows:
        plan = plan._replace(of_error={})
    return plan._replace(arrays=tuple(arrays))


def _constants(kind: type, field: str, version: int, special: Special) -> Plan:
    values, of_error = {}, {}
    for each in _fields(kind, version):
        if each.name in ERROR:
            of_error[each.name] = int
        elif each.name in special.values:
            value = special.values[each.name]
            if callable(value):
                of_error[each.name] = value
            elif value is not None or version in each.nullable:
                values[each.name] = value
        elif each.default is None and version not in each.nullable and isinstance(each.type, Sized):
            values[each.name] = each.type.zero  # null is the default, but other versions' only
    copied = tuple(each.name for each in _fields(kind, version) if each.name in special.copied)
    return Plan(kind, field, values, of_error, copied, (), (), special)


def _rows(
    kind: type, asked: type, version: int, special: Special, only_rows: bool
) -> Iterator[Plan]:
    """The plans of the arrays of a response, or of a row, that answer for rows of the request."""
    for field in _fields(kind, version):
        row = getattr(field.type, "element", None)
        if not isinstance(row, type) or not _carries_error(row, version):
            continue
        plan = _constants(row, field.name, version, special)
        sources = []
        for path, element in _paths(asked, row, version, special.arrays):
            inner = None
            if isinstance(element, type) and (only_rows or not _has_error(row, version)):
                inner = next(
                    _rows(row, element, version, special._replace(arrays=()), only_rows), None
                )
            sources.append(RowSource(path, inner))
        if not sources:
            continue
        if only_rows and any(source.inner for source in sources):
            plan = plan._replace(of_error={})
        yield plan._replace(sources=tuple(sources))


def _paths(
    asked: type, row: type, version: int, arrays: tuple[str, ...]
) -> Iterator[tuple[tuple[Level, ...], WireType]]:
    """The ways to those elements of the request that have, with the elements around them, all that it says about a row."""
    said = _roles(asked, row, version)

    def search(struct: type, wanted: set[str]) -> Iterator[tuple[tuple[Level, ...], WireType]]:
        for name, element, copies in _arrays(struct, row, version):
            level = Level(name, copies)
            missing = wanted - {ROLES[to] for to, _ in copies}
            if not missing:
                yield (level,), element
            elif isinstance(element, type):
                for rest, last in search(element, missing):
                    yield (level, *rest), last

    found = search(asked, said)
    if arrays:
        found = iter(
            sorted(
                (each for each in found if each[0][0].array in arrays),
                key=lambda each: arrays.index(each[0][0].array),
            )
        )
    return found


def _roles(asked: type, row: type, version: int) -> set[str]:
    """What the elements of a request say about a row."""
    roles = set()
    for _, element, copies in _arrays(asked, row, version):
        roles |= {ROLES[to] for to, _ in copies}
        if isinstance(element, type):
            roles |= _roles(element, row, version)
    return roles


def _arrays(
    struct: type, row: type, version: int
) -> Iterator[tuple[str, WireType, tuple[tuple[str, str], ...]]]:
    """The arrays of a struct of the request: their elements, and what these say about a row."""
    keys = [each for each in _fields(row, version) if each.name in ROLES]
    for field in _fields(struct, version):
        if not isinstance(field.type, Array) or field.name in ROLES:
            continue
        element = field.type.element
        if isinstance(element, type):
            names = {
                ROLES[each.name]: each.name
                for each in _fields(element, version)
                if each.name in ROLES
            }
            copies = [
                (each.name, names[ROLES[each.name]]) for each in keys if ROLES[each.name] in names
            ]
        elif element is Int32:
            copies = [(each.name, "") for each in keys if each.name in PARTITION]
        else:
            copies = [(each.name, "") for each in keys if each.type is element is String][:1]
        yield field.name, element, tuple(copies)


def _fields(kind: type, version: int) -> list[Field]:
    return [each for each in schema_of(kind).fields if version in each.versions]


def _has_error(kind: type, version: int) -> bool:
    return any(each.name in ERROR for each in _fields(kind, version))


def _carries_error(kind: type, version: int) -> bool:
    """Whether a struct has an error, or rows that have one."""
    return _has_error(kind, version) or any(
        isinstance(row := getattr(each.type, "element", None), type)
        and _carries_error(row, version)
        for each in _fields(kind, version)
    )


# From requests


def _made(plan: Plan, request: Any, error: ErrorCode) -> Steps[Any]:
    response = plan.kind(**_values(plan, error))
    for name in plan.copied:
        setattr(response, name, getattr(request, name))
    for rows in plan.arrays:
        setattr(response, rows.field, (yield from _made_rows(rows, [request], error)))
    return response


def _values(plan: Plan, error: ErrorCode) -> dict[str, Any]:
    return {**plan.values, **{name: of(error) for name, of in plan.of_error.items()}}


def _made_rows(plan: Plan, parents: list[Any], error: ErrorCode) -> Steps[list[Any]]:
    """Make the rows for what some structs of the request have."""
    kind, values = plan.kind, _values(plan, error)
    found = _found(plan, parents)
    if plan.special.merged:
        found = yield from _merged(found)
    rows = []
    for number, (inner, keys, elements) in enumerate(found, start=1):
        if plan.special.empty_names and keys.get("name", "") is None:
            keys["name"] = ""
        row = kind(**{**keys, **values})
        rows.append(row)
        if inner is not None:
            yield
            setattr(row, inner.field, (yield from _made_rows(inner, elements, error)))
        elif not number % ROWS_IN_STEP:
            yield
    return rows


Found = Iterable[tuple["Plan | None", dict[str, Any], list[Any]]]


def _found(plan: Plan, parents: list[Any]) -> Found:
    """What the request says about each row, and the elements that say it."""
    for source in plan.sources:
        for parent in parents:
            for keys, element in _elements(source.path, parent):
                yield source.inner, keys, [element]


def _elements(path: tuple[Level, ...], parent: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    (array, copies), *rest = path
    for element in getattr(parent, array) or ():
        keys = {to: getattr(element, name) if name else element for to, name in copies}
        if rest:
            for more, last in _elements(tuple(rest), element):
                yield {**keys, **more}, last
        else:
            yield keys, element


def _merged(found: Found) -> Steps[Found]:
    """The same, with one row for all that is said to be about the same."""
    rows: dict[tuple[Any, ...], tuple[Plan | None, dict[str, Any], list[Any]]] = {}
    for number, (inner, keys, elements) in enumerate(found, start=1):
        rows.setdefault(tuple(keys.values()), (inner, keys, []))[2].extend(elements)
        if not number % ROWS_IN_STEP:
            yield
    return rows.values()
