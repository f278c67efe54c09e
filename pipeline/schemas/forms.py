"""How values are written, apart from their columns: as JSON; see `avro.py` and `protobuf.py` for the others."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from kwire.records.schema_ids import PREFIX_BYTES

#: The most digits of a decimal in a table.
MAX_PRECISION = 38
#: The name of the only column, where values are not made of fields.
BARE = ""


class Misfit(ValueError):
    """A value does not fit the schema; says where and why."""


class ValueForm(Protocol):
    """A form of values. It is pickled."""

    def body(self, value: bytes) -> bytes:
        """What follows the id of a schema, and what else says which one of it. Raises Misfit."""

    def read(self, data: bytes, table: ValueForm | None = None) -> dict[str, Any]:
        """The fields of a value; `table` is the form that the table's schema has, if the value has an id. Raises Misfit."""


@dataclass(frozen=True)
class Json:
    """Any JSON; the columns say what is to be in it."""

    def body(self, value: bytes) -> bytes:
        """See ValueForm."""
        return value[PREFIX_BYTES:]

    def read(self, data: bytes, table: ValueForm | None = None) -> dict[str, Any]:
        """See ValueForm."""
        try:
            found = json.loads(data, parse_float=Decimal)
        except Exception as error:
            raise misfit("JSON", error) from error
        if not isinstance(found, dict):
            raise Misfit("not an object")
        return found


def misfit(form: str, error: Exception, *, also: str = "") -> Misfit:
    """What is said of data that is not of its form, or, `also`, what else may be wrong."""
    return Misfit(f"not {form} of this schema{also}: {type(error).__name__}: {error}")
