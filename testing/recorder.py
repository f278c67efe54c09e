"""The requests and replies of clients as JSON, for assertions and for saving."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from .exchange import TOKEN, Exchange
from .faults import checked_api
from .nearest import nearest

if TYPE_CHECKING:
    from .compare import Difference

#: A request in an assertion: the name of its API, or that and the fields that it has to have.
Expected = str | tuple[str, Mapping[str, Any]]


class Recorder:
    """The requests and replies of clients, from when it was made until `stop` or the end of a `with` block."""

    def __init__(self, stop: Callable[[Recorder], None]) -> None:
        #: In the order in which the broker has taken them up.
        self.exchanges: list[Exchange] = []
        self._stop: Callable[[Recorder], None] | None = stop

    def stop(self) -> None:
        """Stop recording; the recorded exchanges stay. Does nothing if the recording has ended."""
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
        """The exchanges whose requests match the API, topic and so on; criteria that are not given match all.

        Shape: `api` is a name of the protocol guide. Errors: ValueError for an unknown one, with the nearest known
        name.
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
        """Check that these requests arrived in this order; other requests may have arrived in between.

        Shape: each is the name of an API, or a name with the fields that the request must have, in the form of
        `request`: ("OffsetCommit", {"groupId": "shop"}). A list must contain each given element. Returns the exchanges.
        Errors: AssertionError, which says what is missing, and how the requests of its API differ; ValueError for an
        unknown API.
        """
        wanted = [(each, {}) if isinstance(each, str) else each for each in expected]
        for api, fields in wanted:
            checked_api(api)
            if not isinstance(fields, Mapping):
                raise ValueError(f"the fields of {api} are names with values, not {fields!r}")
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

    def save(self, path: Path | str, *, frames: bool = False) -> None:
        """Write all exchanges as JSON Lines: one object a line, see docs/testing.md. Secrets are hidden. Errors: OSError.

        Shape: with `frames`, requests and replies are also there as the bytes that they were, records included, which `kwire compare` needs;
        not those with secrets.
        """
        if frames:
            from .recording import recording_of, save

            save(recording_of(list(self.exchanges)), Path(path))
            return
        lines = [json.dumps(each.to_json()) + "\n" for each in list(self.exchanges)]
        Path(path).write_text("".join(lines), encoding="utf-8")

    def replay(self, bootstrap: str) -> list[Difference]:
        """Send the same requests to another broker, and return how its replies differ from the recorded ones.

        Shape: all requests go to the first address of `bootstrap`, on as many connections as there were, in their
        original order, and each after the replies that preceded it. Missing topics from the beginning of the recording
        are created. Requests with secrets are not sent.
        Errors: OSError, KafkaError.
        """
        from .compare import compare, recorded
        from .recording import recording_of
        from .replay import play

        recording = recording_of(list(self.exchanges))
        return compare(recorded(recording.exchanges), play(recording, bootstrap))

    def __len__(self) -> int:
        return len(self.exchanges)

    def __repr__(self) -> str:
        return f"<{len(self)} recorded requests>"


def differences(expected: Any, actual: Any, path: str = "") -> list[str]:
    """The differences between a value and the expected one; unexpected parts of objects and lists are ignored."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        found = []
        for name, value in expected.items():
            inner = f"{path}.{name}" if path else str(name)
            if name in actual:
                found += differences(value, actual[name], inner)
            else:
                known = nearest(str(name), actual) or f"; there are {', '.join(actual)}"
                found.append(f"{inner}: there is no such field{known}")
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
    """The message of an assertion about requests in the wrong order."""
    lines = ["the requests did not arrive in this order:"]
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
                lines.append("        arrived too early")
    return "\n".join(lines)
