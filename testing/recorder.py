"""What clients have asked and been answered, as JSON: for assertions, and to save."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from kwire.api import ApiKey, request_class, response_class
from kwire.codec import decode_prefix
from kwire.connection import BARE_TOKEN
from kwire.errors import ErrorCode, WireError
from kwire.header import decode_response_header

from . import rows
from .faults import api_names, checked_api
from .handlers import ids_of
from .json_form import HIDDEN, to_json

#: Stands for the API of tokens that come without a request, after SaslHandshake v0.
TOKEN = "SaslToken"
_NAMES = {number: name for name, number in api_names().items()}

#: A request in an assertion: the name of its API, or that and the fields that it has to have.
Expected = str | tuple[str, Mapping[str, Any]]


class Exchange:
    """One request and its reply, decoded when they are looked at.

    Shape: `connection` counts the connections of the broker from 1, as in faults; `principal` is who the client was when it asked; the sizes
    are those on the wire. `replied_ms` and `response_bytes` are None as long as there is no reply. Unit: times are on the broker's wall clock.
    """

    def __init__(
        self,
        *,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str | None,
        connection: int,
        principal: str,
        at_ms: int,
        frame: bytes,
        body_offset: int,
        image: Any,
    ) -> None:
        self.api = TOKEN if api_key == BARE_TOKEN else _NAMES.get(api_key, str(api_key))
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.connection = connection
        self.principal = principal
        self.at_ms = at_ms
        self.replied_ms: int | None = None
        self.request_bytes = len(frame) + 4
        self.response_bytes: int | None = None
        self._api_key = api_key
        self._frame = frame
        self._body_offset = body_offset
        self._image = image
        self._reply = b""
        self._message: Any = None
        self._request: dict[str, Any] | None = None
        self._response: dict[str, Any] | None = None

    def replied(self, frame: bytes, at_ms: int) -> None:
        """The reply is on its way."""
        self._reply, self.response_bytes, self.replied_ms = frame, len(frame), at_ms

    @property
    def message(self) -> Any:
        """The request as a message of `kwire.messages`; None if it cannot be decoded."""
        if self._message is None and self._api_key != BARE_TOKEN:
            try:
                self._message, _ = decode_prefix(
                    request_class(self._api_key), self._frame, self.version, self._body_offset
                )
            except (KeyError, WireError):
                return None
        return self._message

    @property
    def request(self) -> dict[str, Any]:
        """The request, with Kafka's names. Shape: {"undecodable": the reason} if it is not as it should be."""
        if self._request is None:
            self._request = self._decoded_request()
        return self._request

    def _decoded_request(self) -> dict[str, Any]:
        if self._api_key == BARE_TOKEN:
            return {"authBytes": HIDDEN}
        if self.message is None:
            return {"undecodable": f"API key {self._api_key}, version {self.version}"}
        return to_json(self.message, self.version)

    @property
    def response(self) -> dict[str, Any] | None:
        """The reply, with Kafka's names; None if there is none."""
        if self._response is None and self.response_bytes:
            self._response = self._decoded_response()
        return self._response

    def _decoded_response(self) -> dict[str, Any]:
        if self._api_key == BARE_TOKEN:
            return {"authBytes": HIDDEN}
        frame = self._reply[4:]
        try:
            _, offset = decode_response_header(frame, self._api_key, self.version)
            version = self.version
            if self._api_key == ApiKey.API_VERSIONS and _is_unsupported(frame[offset:]):
                version = 0  # which every client can read
            message: Any
            message, _ = decode_prefix(response_class(self._api_key), frame, version, offset)
        except (KeyError, WireError) as error:
            return {"undecodable": str(error)}
        return to_json(message, version)

    @property
    def topics(self) -> tuple[tuple[str, int | None], ...]:
        """The topics and partitions that the request names; the partition is None where it names only the topic."""
        if self.message is None:
            return ()
        names = {tid: topic.name for tid, topic in self._image.topics_by_id.items()}
        return tuple(rows.rows_of(self.message, names))

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that the request names."""
        return () if self.message is None else ids_of(self.api, self.message)[0]

    @property
    def transactional_ids(self) -> tuple[str, ...]:
        """The transactional ids that the request names."""
        return () if self.message is None else ids_of(self.api, self.message)[1]

    def to_json(self) -> dict[str, Any]:
        """All of it, as one line of a saved recording."""
        return {
            "atMs": self.at_ms,
            "repliedMs": self.replied_ms,
            "connection": self.connection,
            "clientId": self.client_id,
            "principal": self.principal,
            "api": self.api,
            "version": self.version,
            "correlationId": self.correlation_id,
            "requestBytes": self.request_bytes,
            "responseBytes": self.response_bytes,
            "request": self.request,
            "response": self.response,
        }

    def __str__(self) -> str:
        return (
            f"{self.api} v{self.version} client_id={self.client_id!r} connection={self.connection}"
        )

    def __repr__(self) -> str:
        return f"<{self}>"


class Recorder:
    """The requests and replies of clients, from when it was made until `stop` or the end of a `with` block."""

    def __init__(self, stop: Callable[[Recorder], None]) -> None:
        #: In the order in which the broker has taken them up.
        self.exchanges: list[Exchange] = []
        self._stop: Callable[[Recorder], None] | None = stop

    def stop(self) -> None:
        """Record no more; what is recorded stays. Harmless if it has ended."""
        stop, self._stop = self._stop, None
        if stop is not None:
            stop(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def requests(
        self,
        api: str | None = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
        connection: int | None = None,
        principal: str | None = None,
    ) -> list[Exchange]:
        """The exchanges whose request is of this API, names this topic and so on; what is not given matches all.

        Shape: `api` is a name of the protocol guide. Errors: ValueError for an unknown one, with the nearest known name.
        """
        if api is not None and api != TOKEN:
            checked_api(api)
        return [
            each
            for each in list(self.exchanges)
            if api in (None, each.api)
            and client_id in (None, each.client_id)
            and connection in (None, each.connection)
            and principal in (None, each.principal)
            and (group is None or group in each.groups)
            and (transactional_id is None or transactional_id in each.transactional_ids)
            and (
                (topic is None and partition is None)
                or any(
                    topic in (None, name) and (partition is None or number in (None, partition))
                    for name, number in each.topics
                )
            )
        ]

    def assert_order(self, *expected: Expected) -> list[Exchange]:
        """Check that these requests have come in this order; others may have come between them.

        Shape: each is the name of an API, or that and fields that the request has to have, with their names and values as in `request`:
        ("OffsetCommit", {"groupId": "shop"}). Of a list, each given element has to be there. Returns the exchanges.
        Errors: AssertionError, which says what is missing, and how the requests of its API differ; ValueError for an unknown API.
        """
        wanted = [(each, {}) if isinstance(each, str) else each for each in expected]
        for api, _ in wanted:
            checked_api(api)
        recorded = list(self.exchanges)
        found: list[int] = []
        for api, fields in wanted:
            start = found[-1] + 1 if found else 0
            at = next(
                (
                    number
                    for number in range(start, len(recorded))
                    if recorded[number].api == api
                    and not differences(fields, recorded[number].request)
                ),
                None,
            )
            if at is None:
                raise AssertionError(_explained(wanted, found, recorded))
            found.append(at)
        return [recorded[number] for number in found]

    def save(self, path: Path | str) -> None:
        """Write all exchanges as JSON Lines: one object a line, see docs/testing.md. Secrets are hidden. Errors: OSError."""
        lines = [json.dumps(each.to_json()) + "\n" for each in list(self.exchanges)]
        Path(path).write_text("".join(lines), encoding="utf-8")

    def __len__(self) -> int:
        return len(self.exchanges)

    def __repr__(self) -> str:
        return f"<{len(self)} recorded requests>"


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """How a value differs from what is expected of it; of objects and lists only what is expected counts."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        found = []
        for name, value in expected.items():
            inner = f"{path}.{name}" if path else str(name)
            if name in actual:
                found += differences(value, actual[name], inner)
            else:
                found.append(f"{inner}: there is no such field; there are {', '.join(actual)}")
        return found
    if isinstance(expected, list) and isinstance(actual, list):
        found = []
        for number, value in enumerate(expected):
            tried: list[list[str]] = [
                differences(value, each, f"{path}[{number}]") for each in actual
            ]
            if not tried:
                found.append(f"{path}[{number}]: the list is empty")
            elif all(tried):
                closest: list[str] = min(tried, key=len)
                found += closest
        return found
    return [] if expected == actual else [f"{path}: {actual!r}, not {expected!r}"]


def _explained(
    wanted: Iterable[tuple[str, Mapping[str, Any]]], found: list[int], recorded: list[Exchange]
) -> str:
    """What an assertion says about requests that have not come in order."""
    lines = ["the requests have not come in this order:"]
    missing: tuple[str, Mapping[str, Any]] | None = None
    for number, (api, fields) in enumerate(wanted):
        words = f"{api} {json.dumps(fields)}" if fields else api
        if number < len(found):
            lines.append(f"    {words}    came as #{found[number] + 1}")
        elif missing is None:
            missing = api, fields
            after = f" after #{found[-1] + 1}" if found else ""
            lines.append(f"  > {words}    has not come{after}")
        else:
            lines.append(f"    {words}")
    assert missing is not None
    lines.append("recorded:" if recorded else "nothing is recorded")
    start = found[-1] + 1 if found else 0
    for number, each in enumerate(recorded):
        lines.append(f"    #{number + 1} {each}")
        if each.api == missing[0] and number not in found:
            differs = differences(missing[1], each.request)
            if differs:
                lines += [f"        {text}" for text in differs]
            elif number < start:
                lines.append("        has come too early")
    return "\n".join(lines)


def _is_unsupported(body: bytes) -> bool:
    return int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION
