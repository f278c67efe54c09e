"""The request and response types of routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

TEXT = "text/plain; charset=utf-8"
JSON = "application/json"
#: The maximum number of fields in a request's query.
MAX_FIELDS = 100


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request. Shape: header names are in lower case; the last value of a repeated header counts.

    `query_string` is the query in its original form; `client_host` is the client's address.
    """

    method: str
    path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes = b""
    query_string: str = ""
    client_host: str = ""

    @classmethod
    def of(
        cls,
        method: bytes,
        target: bytes,
        headers: list[tuple[bytes, bytes]],
        body: bytes,
        client_host: str = "",
    ) -> HttpRequest:
        """The request with this target, such as `/metrics?names=jmx`. Errors: ValueError for a query with too many
        fields.
        """
        path, _, query = target.decode("latin-1").partition("?")
        return cls(
            method.decode("ascii"),
            path,
            parse_qs(query, keep_blank_values=True, max_num_fields=MAX_FIELDS),
            {name.decode("latin-1"): value.decode("latin-1") for name, value in headers},
            body,
            query,
            client_host,
        )


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """One response. Shape: `body` is complete, or consists of pieces that are made as the client reads them."""

    status: int = 200
    body: bytes | AsyncIterator[bytes] = b""
    content_type: str = TEXT
    headers: list[tuple[str, str]] = field(default_factory=list)


Route = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


def text(status: int, line: str) -> HttpResponse:
    """A response of one line."""
    return HttpResponse(status, f"{line}\n".encode())


def as_json(status: int, value: Any) -> HttpResponse:
    """A response that carries a JSON value."""
    return HttpResponse(status, json.dumps(value).encode() + b"\n", JSON)
