"""The verbs of a test over HTTP, for tests in any language: what each path does, and who may ask.

    with Control(broker, token) ...: control.route answers the requests below /v1/

The table OPERATIONS is the one list of what there is; the OpenAPI description and docs/control.md are made of it.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kwire.errors import EncodeError
from kwire.server.console.guard import is_origin_of
from kwire.server.http.messages import HttpRequest, HttpResponse, as_json
from kwire.server.integers import parse_integer
from kwire.server.json_text import parse_json

from . import words
from .client import topics
from .client.connections import KafkaError
from .faults import DiskFault, Fault, Rule, UnusedFault
from .nearest import nearest
from .words import ActionRefused, BadRequest, Word, checked, from_query

if TYPE_CHECKING:
    from .recorder import Recorder
    from .served_broker import ServedBroker

MAX_RULES = 1000
MAX_FORKS = 100
#: The path of a fork, and of its resources.
FORK = re.compile(r"/v1/fork/([0-9]{1,9})(/.+)")
JSON_LINES = "application/jsonl"
#: Stands for every whole number beyond 64 bits.
FAR = 1 << 64


class NotFound(LookupError):
    """Raised if a resource does not exist; the message lists the existing ones."""


@dataclass(frozen=True)
class OperationArguments:
    """The arguments of an operation.

    Shape: `named` are the parts of the path in braces.
    """

    named: Mapping[str, str]
    query: Mapping[str, Any]
    body: Any


@dataclass(frozen=True)
class ControlOperation:
    """One method of one path.

    Shape: `body` are the words of the request's JSON object, None if it has none; `reads_body` checks it where it is more than
    an object. `is_open` needs no token.
    """

    method: str
    path: str
    summary: str
    do: Callable[[Control, OperationArguments], Any]
    status: int = 200
    body: Mapping[str, Word] | None = None
    query: Mapping[str, Word] = field(default_factory=dict)
    checks_body: bool = True
    is_open: bool = False

    def match(self, parts: list[str]) -> dict[str, str] | None:
        """The named parts of a path; None if it is another path."""
        own = self.path.strip("/").split("/")
        if len(own) != len(parts):
            return None
        named = {}
        for mine, theirs in zip(own, parts, strict=True):
            if mine.startswith("{"):
                named[mine[1:-1]] = theirs
            elif mine != theirs:
                return None
        return named


class Control:
    """Answers the requests to one control port.

    Shape: what blocks is done in one thread, one request after the other; `close` ends it.
    """

    def __init__(self, broker: ServedBroker, token: str) -> None:
        self.broker = broker
        self._token = token
        self._numbers = itertools.count(1)
        self._rules: dict[int, Rule] = {}
        self._recorders: dict[int, Recorder] = {}
        #: The control of each fork, which has all paths of this one below its own.
        self._forks: dict[int, Control] = {}
        self._thread = ThreadPoolExecutor(1, "kwire-control")

    def close(self) -> None:
        """Accept no more requests."""
        for fork in self._forks.values():
            fork.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def route(self, request: HttpRequest) -> HttpResponse:
        """Answer a request; every error is a JSON object with `error`, in words."""
        if (below := FORK.fullmatch(request.path)) is not None:
            fork = self._forks.get(int(below[1]))
            if fork is not None:
                return await fork.route(replace(request, path=below[2]))
        try:
            operation, named = self._found(request)
            self._admit(request, operation)
            asked = OperationArguments(
                named, from_query(request.query, operation.query), _body(request, operation)
            )
            if operation.is_open:
                value = operation.do(self, asked)
            else:
                work = partial(operation.do, self, asked)
                value = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except _Denied as denied:
            return as_json(denied.status, {"error": str(denied)})
        except NotFound as error:
            return as_json(404, {"error": str(error)})
        except (
            ValueError,
            TypeError,
            EncodeError,
        ) as error:  # also of the verbs: BadRequest and their own
            return as_json(400, {"error": str(error)})
        except KafkaError as error:
            return as_json(409, {"error": str(error), "code": error.code.name})
        except ActionRefused as error:
            return as_json(409, {"error": str(error)})
        except TimeoutError as error:
            return as_json(504, {"error": str(error)})
        if isinstance(value, HttpResponse):
            return value
        return as_json(operation.status, value)

    def _found(self, request: HttpRequest) -> tuple[ControlOperation, dict[str, str]]:
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        method = "GET" if request.method == "HEAD" else request.method
        others = []
        for operation in OPERATIONS:
            named = operation.match(parts)
            if named is not None:
                if operation.method == method:
                    return operation, named
                others.append(operation.method)
        if others:
            raise _Denied(405, f"{request.path} is for {', '.join(others)}, not {request.method}")
        paths = {each.path for each in OPERATIONS}
        known = nearest(request.path, paths) or f"; there are {', '.join(sorted(paths))}"
        if (below := FORK.fullmatch(request.path)) is not None:
            raise NotFound(f"there is no fork {below[1]}")
        raise NotFound(f"there is nothing at {request.path}{known}")

    def _admit(self, request: HttpRequest, operation: ControlOperation) -> None:
        """Errors: _Denied for a page of another site in a browser, and for whoever has no token."""
        headers = request.headers
        origin, host = headers.get("origin", ""), headers.get("host", "").lower()
        site = headers.get("sec-fetch-site", "none")
        if site not in ("none", "same-origin") or (origin and not is_origin_of(origin, host)):
            raise _Denied(403, f"the request was made by another site ({(origin or site)[:100]})")
        if operation.is_open:
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise _Denied(401, "the request has no token: send Authorization: Bearer TOKEN")
        if not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            raise _Denied(401, "the token is not that of this broker")

    # -- topics

    def topics(self, _: OperationArguments) -> Any:
        return {"topics": topics.names(self.broker.client)}

    def create_topic(self, asked: OperationArguments) -> Any:
        given = dict(asked.body)
        topic = self.broker.topic(given.pop("name", None), **given)
        return self._topic(topic)

    def topic(self, asked: OperationArguments) -> Any:
        return self._topic(self._known_topic(asked))

    def delete_topic(self, asked: OperationArguments) -> Any:
        name = self._known_topic(asked)
        topics.delete(self.broker.client, [name])
        return {"topics": topics.names(self.broker.client)}

    def _known_topic(self, asked: OperationArguments) -> str:
        name, known = asked.named["topic"], topics.names(self.broker.client)
        if name not in known:
            raise NotFound(f"there is no topic {name!r}{nearest(name, known)}")
        return name

    def _topic(self, name: str) -> Any:
        from .client.records import EARLIEST, LATEST, offset_at

        client = self.broker.client
        rows = [
            {
                "partition": number,
                "start_offset": offset_at(client, name, number, EARLIEST),
                "end_offset": offset_at(client, name, number, LATEST),
            }
            for number in sorted(topics.leaders(client, name))
        ]
        return {"name": str(name), "partitions": rows}

    # -- time

    def clock(self, _: OperationArguments) -> Any:
        clock = self.broker.clock
        return {"now_ms": clock.now_ms(), "frozen": clock.is_frozen}

    def freeze(self, asked: OperationArguments) -> Any:
        self.broker.clock.freeze(**asked.body)
        return self.clock(asked)

    def resume(self, asked: OperationArguments) -> Any:
        self.broker.clock.resume()
        return self.clock(asked)

    def advance(self, asked: OperationArguments) -> Any:
        keep = asked.body.get("keep_members", False)
        with _naming("duration"):
            self.broker.clock.advance(asked.body["duration"], keep_members=keep)
        return self.clock(asked)

    def jump(self, asked: OperationArguments) -> Any:
        with _naming("duration"):
            self.broker.clock.jump(asked.body["duration"])
        return self.clock(asked)

    # -- faults

    def faults(self, _: OperationArguments) -> Any:
        return {"faults": [_rule(number, rule) for number, rule in self._rules.items()]}

    def add_faults(self, asked: OperationArguments) -> Any:
        body = asked.body
        if isinstance(body, dict) and "faults" in body:
            if len(body) > 1:
                raise BadRequest("'faults' must be the only key")
            body = body["faults"]
        given = body if isinstance(body, list) else [body]
        if len(given) + len(self._rules) > MAX_RULES:
            raise BadRequest(f"there are at most {MAX_RULES} rules")
        rules = [rule_arguments(each, len(given), number) for number, each in enumerate(given, 1)]
        added = {}
        for kind, arguments in rules:
            make = self.broker.disk_fault if kind is DiskFault else self.broker.fault
            added[next(self._numbers)] = make(**arguments)
        self._rules |= added
        return {"faults": [_rule(number, rule) for number, rule in added.items()]}

    def fault(self, asked: OperationArguments) -> Any:
        number = _number(asked.named["fault"], self._rules, "rule")
        return _rule(number, self._rules[number])

    def remove_fault(self, asked: OperationArguments) -> Any:
        number = _number(asked.named["fault"], self._rules, "rule")
        rule = self._rules.pop(number)
        _end(rule)
        return _rule(number, rule)

    def remove_faults(self, asked: OperationArguments) -> Any:
        removed = self.faults(asked)
        while self._rules:
            _end(self._rules.popitem()[1])
        return removed

    # -- fencing

    def fence(self, asked: OperationArguments) -> Any:
        self.broker.fence(**asked.body)
        return asked.body

    # -- recordings

    def recordings(self, _: OperationArguments) -> Any:
        return {"recordings": [_recording(*each) for each in self._recorders.items()]}

    def record(self, _: OperationArguments) -> Any:
        number = next(self._numbers)
        self._recorders[number] = self.broker.record()
        return _recording(number, self._recorders[number])

    def recording(self, asked: OperationArguments) -> Any:
        number, recorder = self._recorder(asked)
        found = [each.to_json() for each in recorder.requests(**asked.query)]
        return {**_recording(number, recorder), "exchanges": found}

    def recording_lines(self, asked: OperationArguments) -> Any:
        _, recorder = self._recorder(asked)
        lines = [json.dumps(each.to_json()) + "\n" for each in recorder.requests(**asked.query)]
        return HttpResponse(200, "".join(lines).encode(), JSON_LINES)

    def stop_recording(self, asked: OperationArguments) -> Any:
        number, recorder = self._recorder(asked)
        recorder.stop()
        return _recording(number, recorder)

    def remove_recording(self, asked: OperationArguments) -> Any:
        number, recorder = self._recorder(asked)
        recorder.stop()
        del self._recorders[number]
        return _recording(number, recorder)

    def _recorder(self, asked: OperationArguments) -> tuple[int, Recorder]:
        number = _number(asked.named["recording"], self._recorders, "recording")
        return number, self._recorders[number]

    # -- forks

    def forks(self, _: OperationArguments) -> Any:
        return {"forks": [_fork(*each) for each in self._forks.items()]}

    def add_fork(self, _: OperationArguments) -> Any:
        if len(self._forks) >= MAX_FORKS:
            raise ActionRefused(f"there are {MAX_FORKS} forks; remove some")
        number = next(self._numbers)
        self._forks[number] = Control(self.broker.fork(), self._token)
        return _fork(number, self._forks[number])

    def remove_fork(self, asked: OperationArguments) -> Any:
        number = _number(asked.named["fork"], self._forks, "fork")
        fork = self._forks.pop(number)
        fork.close()
        fork.broker.stop()
        return _fork(number, fork)

    # -- the broker

    def reset(self, asked: OperationArguments) -> Any:
        if self.broker.keeps_data:
            raise ActionRefused(
                "this broker was given a directory for its data; only a broker with temporary data "
                "(without --data-dir and log.dirs) can be reset"
            )
        for fork in self._forks.values():
            fork.close()
        self._rules, self._recorders, self._forks = {}, {}, {}
        self.broker.empty()
        return self.health(asked)

    def health(self, _: OperationArguments) -> Any:
        broker = self.broker
        if broker.failure is not None:
            return as_json(503, {"status": "failed", "error": broker.failure})
        return {"status": "ready", "bootstrap_servers": broker.bootstrap_servers}

    def description(self, _: OperationArguments) -> Any:
        return openapi()


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Let a message about a value name its word. Errors: BadRequest."""
    try:
        yield
    except (ValueError, OverflowError) as error:
        raise BadRequest(f"{name} in the body: {error}") from None


class _Denied(Exception):
    """Raised if the request is refused regardless of its content."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def rule_arguments(given: object, count: int, number: int) -> tuple[type[Rule], dict[str, Any]]:
    """The kind of a rule and its arguments, which make one. Errors: ValueError, TypeError, which name the rule if there are several."""
    where = "the rule" if count == 1 else f"rule {number}"
    is_disk = isinstance(given, dict) and "operation" in given
    kind: type[Rule] = DiskFault if is_disk else Fault
    arguments = checked(given, words.DISK_FAULT if is_disk else words.FAULT, where)
    try:
        kind(**arguments)
    except (ValueError, TypeError) as error:
        raise BadRequest(str(error) if count == 1 else f"{where}: {error}") from None
    return kind, arguments


def _end(rule: Rule) -> None:
    """Remove a rule; whoever removes it sees in the answer whether it has matched anything."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedFault)
        rule.remove()


def _rule(number: int, rule: Rule) -> dict[str, Any]:
    return {
        "id": number,
        "rule": str(rule),
        "matched": rule.matched,
        "hits": rule.hits,
        "ended": rule.ended,
    }


def _fork(number: int, fork: Control) -> dict[str, Any]:
    return {
        "id": number,
        "bootstrap_servers": fork.broker.bootstrap_servers,
        "path": f"/v1/fork/{number}",
    }


def _recording(number: int, recorder: Recorder) -> dict[str, Any]:
    return {"id": number, "recorded": len(recorder)}


def _number(text: str, known: Mapping[int, Any], what: str) -> int:
    number: int | None = parse_integer(text)
    if number is None or number not in known:
        there = ", ".join(map(str, known)) or "none"
        raise NotFound(f"there is no {what} {text[:60]} ({what}s: {there})")
    return number


def _whole_number(digits: str) -> int:
    """A number of a body; Python converts no more than 4,300 digits, and nothing here has more than 19."""
    number: int | None = parse_integer(digits)
    if number is None:
        return -FAR if digits.startswith("-") else FAR
    return number


def _body(request: HttpRequest, operation: ControlOperation) -> Any:
    """The body of a request, of the kinds that the operation needs. Errors: BadRequest."""
    if operation.body is None:
        return None
    try:
        given = parse_json(request.body or b"{}", parse_int=_whole_number)
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise BadRequest("the body is nested too deeply") from None
    return checked(given, operation.body, "the body") if operation.checks_body else given


OPERATIONS = (
    ControlOperation("GET", "/v1/health", "whether the broker serves, and its address", Control.health, is_open=True),
    ControlOperation("GET", "/v1/openapi.json", "this description", Control.description, is_open=True),
    ControlOperation("GET", "/v1/topics", "the names of all topics", Control.topics),
    ControlOperation("POST", "/v1/topics", "create a topic, which is usable at once", Control.create_topic, 201, words.TOPIC),
    ControlOperation("GET", "/v1/topics/{topic}", "the topic's partitions and their offsets", Control.topic),
    ControlOperation("DELETE", "/v1/topics/{topic}", "delete a topic", Control.delete_topic),
    ControlOperation("GET", "/v1/clock", "the broker's time", Control.clock),
    ControlOperation("POST", "/v1/clock/freeze", "stop the broker's time", Control.freeze, body=words.FREEZE),
    ControlOperation("POST", "/v1/clock/resume", "let the time run again", Control.resume),
    ControlOperation("POST", "/v1/clock/advance", "let a duration pass at once", Control.advance, body=words.ADVANCE),
    ControlOperation("POST", "/v1/clock/jump", "set the wall clock forward or back", Control.jump, body=words.JUMP),
    ControlOperation("GET", "/v1/faults", "the rules, and how often each has applied", Control.faults),
    ControlOperation(
        "POST",
        "/v1/faults",
        "add a rule or a list of rules; if one is invalid, none is added",
        Control.add_faults,
        201,
        words.FAULT,
        checks_body=False,
    ),
    ControlOperation("DELETE", "/v1/faults", "remove all rules", Control.remove_faults),
    ControlOperation("GET", "/v1/faults/{fault}", "a rule, and how often it has applied", Control.fault),
    ControlOperation("DELETE", "/v1/faults/{fault}", "remove a rule", Control.remove_fault),
    ControlOperation(
        "POST",
        "/v1/fence",
        "fence a producer, or remove the members of a group",
        Control.fence,
        body=words.FENCE,
    ),
    ControlOperation("GET", "/v1/recordings", "the recordings", Control.recordings),
    ControlOperation("POST", "/v1/recordings", "record all requests and responses from now on", Control.record, 201),
    ControlOperation(
        "GET",
        "/v1/recordings/{recording}",
        "the recorded requests and responses",
        Control.recording,
        query=words.REQUESTS,
    ),
    ControlOperation(
        "GET",
        "/v1/recordings/{recording}/lines",
        "the same as JSON Lines, as `save` writes them",
        Control.recording_lines,
        query=words.REQUESTS,
    ),
    ControlOperation("POST", "/v1/recordings/{recording}/stop", "stop recording", Control.stop_recording),
    ControlOperation("DELETE", "/v1/recordings/{recording}", "delete a recording", Control.remove_recording),
    ControlOperation("GET", "/v1/fork", "the forks", Control.forks),
    ControlOperation(
        "POST",
        "/v1/fork",
        "start another broker with a copy of this broker's current state",
        Control.add_fork,
        201,
    ),
    ControlOperation("DELETE", "/v1/fork/{fork}", "stop and delete a fork", Control.remove_fork),
    ControlOperation(
        "POST",
        "/v1/reset",
        "start afresh on the same ports: without topics, groups, rules, recordings or forks, at the machine's time",
        Control.reset,
    ),
)  # fmt: skip


def openapi() -> dict[str, Any]:
    """The description of the port in OpenAPI 3.1."""
    paths: dict[str, dict[str, Any]] = {}
    error = {
        "description": "The request failed.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    for each in OPERATIONS:
        names = [part[1:-1] for part in each.path.split("/") if part.startswith("{")]
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in names
        ]
        parameters += [
            {
                "name": name,
                "in": "query",
                "description": word.text,
                "schema": words.KINDS[word.kind][1],
            }
            for name, word in each.query.items()
        ]
        kind = JSON_LINES if each.do is Control.recording_lines else "application/json"
        described: dict[str, Any] = {
            "summary": each.summary,
            "operationId": each.do.__name__,
            "responses": {
                str(each.status): {
                    "description": "It is done.",
                    "content": {kind: {"schema": {"type": "object"}}},
                },
                "default": error,
            },
        }
        if parameters:
            described["parameters"] = parameters
        if each.body is not None:
            described["requestBody"] = {
                "required": True,
                "content": {"application/json": {"schema": _body_schema(each)}},
            }
        if each.is_open:
            described["security"] = []
        paths.setdefault(each.path, {})[each.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "kwire control port",
            "version": "1",
            "description": "Controls the time and the failures of a broker for tests, and records what its clients send.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Fault": words.schema(words.FAULT),
                "DiskFault": words.schema(words.DISK_FAULT),
                "Error": {
                    "type": "object",
                    "properties": {
                        "error": {"type": "string", "description": "A description of the problem."},
                        "code": {
                            "type": "string",
                            "description": "The name of the error, if Kafka returned one.",
                        },
                    },
                    "required": ["error"],
                },
            },
        },
    }


def _body_schema(operation: ControlOperation) -> dict[str, Any]:
    assert operation.body is not None
    if operation.checks_body:
        return words.schema(operation.body)
    one = [{"$ref": f"#/components/schemas/{name}"} for name in ("Fault", "DiskFault")]
    several = {"type": "array", "items": {"anyOf": one}}
    return {
        "anyOf": [
            *one,
            several,
            {"type": "object", "properties": {"faults": several}, "required": ["faults"]},
        ]
    }
