"""One recorded request with its reply."""

from __future__ import annotations

from typing import Any

from kwire.api import ApiKey, request_class, response_class
from kwire.codec import decode_prefix
from kwire.connection import BARE_TOKEN
from kwire.errors import ErrorCode, WireError
from kwire.header import decode_response_header

from . import rows
from .faults import api_names
from .handlers import ids_of
from .json_form import HIDDEN, to_json

#: Stands for the API of tokens that are sent without a request, after SaslHandshake v0.
TOKEN = "SaslToken"
_NAMES = {number: name for name, number in api_names().items()}


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
        order: int,
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
        self.api_key = api_key
        #: The positions of the request and of its reply in the sequence of all messages.
        self.order = order
        self.replied_order: int | None = None
        #: The metadata of the cluster when the request arrived.
        self.image = image
        self.frame = frame
        self._body_offset = body_offset
        self.reply = b""
        self._message: Any = None
        self._request: dict[str, Any] | None = None
        self._response: dict[str, Any] | None = None

    def replied(self, frame: bytes, at_ms: int, order: int) -> None:
        """The reply is on its way."""
        self.reply, self.response_bytes, self.replied_ms = frame, len(frame), at_ms
        self.replied_order = order

    @property
    def message(self) -> Any:
        """The request as a message of `kwire.messages`; None if it cannot be decoded."""
        if self._message is None:
            self._message = self.decoded()
        return self._message

    def decoded(self) -> Any:
        """The request as a separate message object; None if it cannot be decoded."""
        if self.api_key == BARE_TOKEN or not self.frame:
            return None
        try:
            message: Any
            message, _ = decode_prefix(
                request_class(self.api_key), self.frame, self.version, self._body_offset
            )
        except (KeyError, WireError):
            return None
        return message

    @property
    def request(self) -> dict[str, Any]:
        """The request, with Kafka's names. Shape: {"undecodable": the reason} if it is not as it should be."""
        if self._request is None:
            self._request = self._decoded_request()
        return self._request

    def _decoded_request(self) -> dict[str, Any]:
        if self.api_key == BARE_TOKEN:
            return {"authBytes": HIDDEN}
        if self.message is None:
            return {"undecodable": f"API key {self.api_key}, version {self.version}"}
        return to_json(self.message, self.version)

    @property
    def response(self) -> dict[str, Any] | None:
        """The reply, with Kafka's names; None if there is none."""
        if self._response is None and self.response_bytes:
            self._response = self._decoded_response()
        return self._response

    def _decoded_response(self) -> dict[str, Any]:
        if self.api_key == BARE_TOKEN:
            return {"authBytes": HIDDEN}
        try:
            message = self._decode_reply()
        except (KeyError, WireError) as error:
            return {"undecodable": str(error)}
        return to_json(message, self.reply_version(message))

    def decoded_reply(self) -> Any:
        """The reply as a message of `kwire.messages`; None if there is none, or it cannot be decoded."""
        if self.api_key == BARE_TOKEN or not self.reply:
            return None
        try:
            return self._decode_reply()
        except (KeyError, WireError):
            return None

    def _decode_reply(self) -> Any:
        frame, version = self.reply[4:], self.version
        _, offset = decode_response_header(frame, self.api_key, version)
        if self.api_key == ApiKey.API_VERSIONS and _is_unsupported(frame[offset:]):
            version = 0  # which every client can read
        message: Any
        message, _ = decode_prefix(response_class(self.api_key), frame, version, offset)
        return message

    def reply_version(self, message: Any) -> int:
        """The version of the API of a reply."""
        refused = (
            self.api_key == ApiKey.API_VERSIONS
            and message.error_code == ErrorCode.UNSUPPORTED_VERSION
        )
        return 0 if refused else self.version

    @property
    def has_secrets(self) -> bool:
        """Whether fields of the request or the reply are hidden."""
        return self.api_key == BARE_TOKEN or _is_hidden([self.request, self.response])

    @property
    def topics(self) -> tuple[tuple[str, int | None], ...]:
        """The topics and partitions that the request names; the partition is None where it names only the topic."""
        if self.message is None:
            return ()
        names = {tid: topic.name for tid, topic in self.image.topics_by_id.items()}
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


def _is_unsupported(body: bytes) -> bool:
    return int.from_bytes(body[:2], "big") == ErrorCode.UNSUPPORTED_VERSION


def _is_hidden(form: Any) -> bool:
    """Whether something in a message's JSON form is hidden."""
    if isinstance(form, dict):
        return any(map(_is_hidden, form.values()))
    if isinstance(form, list):
        return any(map(_is_hidden, form))
    return bool(form == HIDDEN)
