"""Changes: forms that announce their effect, which is then carried out as the console's principal.

None of these routes exists without `kwire.console.write`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlencode

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from kwire.errors import ErrorCode
from kwire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kwire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kwire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kwire.messages.init_producer_id import InitProducerIdRequest
from kwire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.records.builder import BatchBuilder

from ..client.answers import leaders_of
from ..client.requests import EARLIEST
from ..config.changes import AlterOperation, ConfigResourceType
from ..times import unix_ms
from . import facts, topics, transactions
from .console import PageRefused, said
from .guard import COOKIE, SESSION_MS, BrowserSession, Guard
from .listing import number_in

if TYPE_CHECKING:
    from starlette.requests import Request

    from .pages import Pages

logger = logging.getLogger(__name__)

TIMEOUT_MS = 30_000
MAX_FIELDS = 100
CONCURRENT_TRANSACTIONS = int(ErrorCode.CONCURRENT_TRANSACTIONS)
#: The possible targets of a group's offsets, with their names in the form.
TARGETS = {
    "earliest": "the first offset",
    "latest": "the end",
    "offset": "an offset",
    "time": "a time (UTC)",
    "shift": "this many records forward (or back, with a minus)",
}


@dataclass
class FormField:
    """One field of a form. Shape: `kind` is text, area, check or select; `options` are value and label."""

    name: str
    label: str
    value: str = ""
    kind: str = "text"
    options: list[tuple[str, str]] = field(default_factory=list)
    hint: str = ""


@dataclass
class Preview:
    """A partition whose committed offset would change."""

    topic: str
    partition: int
    before: int
    after: int
    end: int


@dataclass
class WriteForm:
    """A page that changes something. Shape: with `preview`, it asks for confirmation first."""

    title: str
    text: str
    button: str
    fields: list[FormField]
    section: str
    back: str
    danger: bool = False
    preview: list[Preview] | None = None
    error: str = ""


Values = dict[str, str]
Show = Callable[["ConsoleForms", Values], Awaitable[WriteForm]]
#: Carries out the change, and returns the address of the page that shows the result. Errors: WriteFailed.
Do = Callable[["ConsoleForms", Values], Awaitable[str]]


class WriteFailed(Exception):
    """The change was not made; the message is a sentence."""


class ConsoleForms:
    """The forms of one console."""

    def __init__(self, pages: Pages, token: str) -> None:
        self.pages = pages
        self.console = pages.console
        self.guard = Guard(token)
        pages.is_unlocked = lambda request: self._session(request) is not None

    def _now_ms(self) -> int:
        return self.console.broker.clock.monotonic_ms()

    def _session(self, request: Request) -> BrowserSession | None:
        return self.guard.session(request.cookies.get(COOKIE, ""), self._now_ms())

    def routes(self) -> list[Route]:
        """All routes that change something, and the forms before them."""
        forms: dict[str, tuple[Show, Do]] = {
            "topic": (show_create, create),
            "topic-delete": (show_delete, delete),
            "produce": (show_produce, produce),
            "setting": (show_setting, change_setting),
            "reset": (show_reset, reset),
            "abort": (show_abort, abort),
        }
        routes = [
            Route("/console/write", self.locked, methods=["GET"]),
            Route("/console/write", self.unlock, methods=["POST"]),
        ]
        for name, (show, do) in forms.items():
            path = f"/console/write/{name}"
            routes += [
                Route(path, self.form(show), methods=["GET"]),
                Route(path, self.post(show, do), methods=["POST"]),
            ]
        return routes

    # -- locking

    async def locked(self, request: Request) -> Response:
        """The form for the token, or for locking again if the browser has entered it."""
        return await self._unlock_page(request, "")

    async def _unlock_page(self, request: Request, error: str, status: int = 200) -> Response:
        return await self.pages.html(request, "", "unlock.html", {"error": error}, status)

    async def unlock(self, request: Request) -> Response:
        """Accept the token, or lock again."""
        fields = await fields_of(request)
        now_ms = self._now_ms()
        cookie = request.cookies.get(COOKIE, "")
        if (reason := self.guard.refusal(request.headers, cookie, None, now_ms)) is not None:
            return await self._refused(request, reason)
        if fields.get("lock"):
            self.guard.lock(cookie)
            return see("/console/write")
        if self.guard.is_blocked(now_ms):
            return await self._unlock_page(request, "Too many wrong tokens; wait a minute.", 429)
        new = self.guard.unlock(fields.get("token", ""), now_ms)
        if new is None:
            logger.warning("console: a wrong token was entered")
            return await self._unlock_page(request, "That is not the token.", 403)
        logger.info("console: a browser was unlocked for writing")
        response = see("/console/")
        response.set_cookie(
            COOKIE, new, SESSION_MS // 1000, path="/console", httponly=True, samesite="strict"
        )
        return response

    async def _refused(self, request: Request, reason: str) -> Response:
        refused = PageRefused(403, "Not done", f"Nothing was changed: {reason}.")
        return await self.pages.refused(request, "", refused)

    # -- forms

    def form(self, show: Show) -> Callable[[Request], Awaitable[Response]]:
        """The page of a form."""

        async def endpoint(request: Request) -> Response:
            session = self._session(request)
            if session is None:
                return see("/console/write")
            try:
                form = await show(self, dict(request.query_params))
            except PageRefused as refused:
                return await self.pages.refused(request, "", refused)
            return await self._form(request, form, session.code)

        return endpoint

    async def _form(
        self, request: Request, form: WriteForm, code: str, status: int = 200
    ) -> Response:
        values = {"form": form, "code": code, "action": request.url.path}
        return await self.pages.html(request, form.section, "write_form.html", values, status)

    def post(self, show: Show, do: Do) -> Callable[[Request], Awaitable[Response]]:
        """Carry out a form, if it comes from the console's own page."""

        async def endpoint(request: Request) -> Response:
            fields = await fields_of(request)
            cookie = request.cookies.get(COOKIE, "")
            code = fields.pop("code", "")
            reason = self.guard.refusal(request.headers, cookie, code, self._now_ms())
            if reason is not None:
                logger.warning("console: refused %s: %s", request.url.path, reason)
                return await self._refused(request, reason)
            try:
                if fields.pop("preview", ""):
                    return await self._form(request, await show(self, fields), code)
                where = await do(self, fields)
            except PageRefused as refused:
                return await self.pages.refused(request, "", refused)
            except WriteFailed as problem:
                form = await show(self, fields)
                form.error = str(problem)
                return await self._form(request, form, code, 409)
            self.console.forget()
            return see(where)

        return endpoint


def see(path: str) -> RedirectResponse:
    """Redirect the browser to another page."""
    return RedirectResponse(path, 303)


async def fields_of(request: Request) -> Values:
    """The fields of a form; the last value of a repeated field counts. Errors: PageRefused."""
    body = (await request.body()).decode("utf-8", "replace")
    try:
        found = parse_qs(body, keep_blank_values=True, max_num_fields=MAX_FIELDS)
    except ValueError:
        message = f"A form of the console has no more than {MAX_FIELDS} fields."
        raise PageRefused(413, "Too many fields", message) from None
    return {name: values[-1] for name, values in found.items()}


def check(code: int, message: str | None = None) -> None:
    """Errors: WriteFailed for an error code."""
    if code:
        raise WriteFailed(f"Not done: {message or said(code)}")


# -- topics


def controller_of(writes: ConsoleForms) -> int | None:
    """The broker that changes topics; None for this one, which reports if it is not the controller."""
    found = writes.console.broker.image().controller_id
    return found if found >= 0 else None


async def show_create(writes: ConsoleForms, values: Values) -> WriteForm:
    """The form for a new topic."""
    return WriteForm(
        "New topic",
        "Partitions can be added later, but not removed.",
        "Create the topic",
        [
            FormField("name", "Name", values.get("name", "")),
            FormField("partitions", "Partitions", values.get("partitions", "1")),
            FormField(
                "replicas",
                "Replication factor",
                values.get("replicas", ""),
                hint="empty for the broker's default",
            ),
            FormField(
                "configs",
                "Settings, one in a line",
                values.get("configs", ""),
                "area",
                hint="such as retention.ms=3600000",
            ),
        ],
        "topics",
        "/console/topics",
    )


async def create(writes: ConsoleForms, values: Values) -> str:
    """Create a topic."""
    configs = []
    for line in values.get("configs", "").splitlines():
        name, equals, value = line.partition("=")
        if line.strip():
            if not equals:
                raise WriteFailed(f"“{line.strip()}” is not NAME=VALUE.")
            configs.append(CreatableTopicConfig(name=name.strip(), value=value.strip()))
    name = values.get("name", "").strip()
    response = await writes.console.ask(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=positive(values.get("partitions", ""), "Partitions"),
                    replication_factor=(
                        positive(values["replicas"], "Replication factor")
                        if values.get("replicas", "").strip()
                        else -1
                    ),
                    assignments=[],
                    configs=configs,
                )
            ],
            timeout_ms=TIMEOUT_MS,
            validate_only=False,
        ),
        to=controller_of(writes),
    )
    check(response.topics[0].error_code, response.topics[0].error_message)
    logger.info("console: created topic %s", name)
    return f"/console/topics/{name}"


def positive(text: str, name: str) -> int:
    """A whole number from 1 to 10,000. Errors: WriteFailed."""
    number = number_in(text.strip(), 0)
    if not 1 <= number <= 10_000:
        raise WriteFailed(f"{name}: “{text}” is not a number from 1 to 10,000.")
    return number


async def topic_named(writes: ConsoleForms, values: Values) -> Any:
    """The topic of a form. Errors: PageRefused."""
    name = values.get("topic", "")
    found = (await facts.topics(writes.console)).get(name)
    if found is None:
        raise PageRefused(404, "No such topic", f"There is no topic {name}.")
    return found


async def show_delete(writes: ConsoleForms, values: Values) -> WriteForm:
    """The form for deleting a topic."""
    topic = await topic_named(writes, values)
    groups = (await facts.groups(writes.console)).by_topic.get(topic.name, [])
    readers = len({lag.group for lag in groups})
    text = f"Its {len(topic.partitions)} partitions and all of their records will be gone, on every broker."
    if readers:
        text += f" Groups that have committed offsets of it: {readers}."
    return WriteForm(
        f"Delete {topic.name}?",
        text,
        "Delete the topic",
        [
            FormField("topic", "", topic.name, "hidden"),
            FormField("again", "To be sure, type its name", values.get("again", "")),
        ],
        "topics",
        f"/console/topics/{topic.name}",
        danger=True,
    )


async def delete(writes: ConsoleForms, values: Values) -> str:
    """Delete a topic whose name was typed for confirmation."""
    topic = await topic_named(writes, values)
    if values.get("again", "").strip() != topic.name:
        raise WriteFailed("Nothing was deleted: the name is another one.")
    response = await writes.console.ask(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=topic.name, topic_id=bytes(16))],
            topic_names=[],
            timeout_ms=TIMEOUT_MS,
        ),
        6,
        controller_of(writes),
    )
    row = response.responses[0]
    check(row.error_code, row.error_message)
    logger.info("console: deleted topic %s", topic.name)
    return "/console/topics"


async def show_produce(writes: ConsoleForms, values: Values) -> WriteForm:
    """The form for one record."""
    topic = await topic_named(writes, values)
    led = [str(each) for each in topics.led(topic)]
    return WriteForm(
        f"Write a record to {topic.name}",
        "It is appended to the partition that you choose; no partitioner is asked.",
        "Write the record",
        [
            FormField("topic", "", topic.name, "hidden"),
            FormField(
                "partition",
                "Partition",
                values.get("partition", led[0] if led else ""),
                "select",
                [(each, each) for each in led],
            ),
            FormField("key", "Key", values.get("key", ""), hint="empty for none"),
            FormField("value", "Value", values.get("value", ""), "area"),
            FormField(
                "tombstone", "A null value (tombstone)", values.get("tombstone", ""), "check"
            ),
            FormField(
                "headers",
                "Headers, one in a line",
                values.get("headers", ""),
                "area",
                hint="such as source: console",
            ),
        ],
        "topics",
        f"/console/topics/{topic.name}/messages",
    )


async def produce(writes: ConsoleForms, values: Values) -> str:
    """Append a record."""
    topic = await topic_named(writes, values)
    headers = []
    for line in values.get("headers", "").splitlines():
        name, colon, value = line.partition(":")
        if line.strip():
            if not colon:
                raise WriteFailed(f"“{line.strip()}” is not NAME: VALUE.")
            headers.append((name.strip(), value.strip().encode()))
    number = number_in(values.get("partition"), -1)
    text = values.get("value", "").replace("\r\n", "\n")
    builder = BatchBuilder()
    builder.append(
        writes.console.broker.clock.now_ms(),
        values.get("key", "").encode() or None,
        None if values.get("tombstone") else text.encode(),
        headers,
    )
    response = await writes.console.ask(
        ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                TopicProduceData(
                    name=topic.name,
                    partition_data=[
                        PartitionProduceData(index=number, records=memoryview(builder.build()))
                    ],
                )
            ],
        ),
        9,
        leaders_of(topic).get(number),
    )
    row = response.responses[0].partition_responses[0]
    check(row.error_code, row.error_message)
    logger.info(
        "console: wrote a record to %s-%d at offset %d", topic.name, number, row.base_offset
    )
    query = urlencode({"partition": number, "from": "offset", "at": row.base_offset})
    return f"/console/topics/{topic.name}/messages?{query}"


async def show_setting(writes: ConsoleForms, values: Values) -> WriteForm:
    """The form for one setting of a topic."""
    topic = await topic_named(writes, values)
    name = values.get("name", "")
    response = await writes.console.ask(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=topic.name,
                    configuration_keys=[name],
                )
            ],
            include_synonyms=False,
            include_documentation=True,
        )
    )
    configs = response.results[0].configs
    if not configs:
        raise PageRefused(404, "No such setting", f"Topics have no setting {name}.")
    return WriteForm(
        f"{name} of {topic.name}",
        configs[0].documentation or "",
        "Change the setting",
        [
            FormField("topic", "", topic.name, "hidden"),
            FormField("name", "", name, "hidden"),
            FormField("value", "Value", values.get("value", configs[0].value or "")),
            FormField(
                "remove",
                "Remove the topic's own value, so that the broker's default counts",
                values.get("remove", ""),
                "check",
            ),
        ],
        "topics",
        f"/console/topics/{topic.name}/settings",
    )


async def change_setting(writes: ConsoleForms, values: Values) -> str:
    """Set or remove a setting of a topic."""
    topic = await topic_named(writes, values)
    removes = bool(values.get("remove"))
    response = await writes.console.ask(
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=ConfigResourceType.TOPIC,
                    resource_name=topic.name,
                    configs=[
                        AlterableConfig(
                            name=values.get("name", ""),
                            config_operation=AlterOperation.DELETE
                            if removes
                            else AlterOperation.SET,
                            value=None if removes else values.get("value", ""),
                        )
                    ],
                )
            ],
            validate_only=False,
        )
    )
    row = response.responses[0]
    check(row.error_code, row.error_message)
    logger.info("console: changed %s of topic %s", values.get("name", ""), topic.name)
    return f"/console/topics/{topic.name}/settings"


# -- groups


async def show_reset(writes: ConsoleForms, values: Values) -> WriteForm:
    """The form for a group's offsets; with a target, also a preview of the changes."""
    name = values.get("group", "")
    groups = await facts.groups(writes.console)
    if name not in groups.listed:
        raise PageRefused(404, "No such group", f"There is no group {name}.")
    if groups.listed[name].kind == facts.SHARE:
        raise PageRefused(
            400, "A share group", f"Set its offsets with `kwire groups reset {name}`."
        )
    read = sorted({lag.topic for lag in groups.by_group.get(name, [])})
    form = WriteForm(
        f"Reset the offsets of {name}",
        "Only offsets of a group without members can be reset: stop its consumers first.",
        "Show what would change",
        [
            FormField("group", "", name, "hidden"),
            FormField(
                "topic",
                "Topic",
                values.get("topic", ""),
                "select",
                [("", "all with an offset"), *((each, each) for each in read)],
            ),
            FormField("to", "To", values.get("to", "earliest"), "select", list(TARGETS.items())),
            FormField(
                "at", "Offset, time or number", values.get("at", ""), hint="2026-01-31T12:00"
            ),
        ],
        "groups",
        "/console/group?" + urlencode({"id": name}),
        danger=True,
    )
    if "to" in values:
        try:
            form.preview = await resets(writes, values)
            form.button = "Reset the offsets"
            form.text = group_warning(groups.listed[name].state)
        except WriteFailed as problem:
            form.error = str(problem)
    return form


def group_warning(state: str) -> str:
    """A warning, or advice, about the group's members before a reset."""
    if state != "Empty":
        return "The group has members, so this will be refused. Stop its consumers first."
    return "The group has no members. Check what will change, then reset."


async def resets(writes: ConsoleForms, values: Values) -> list[Preview]:
    """The offsets before and after. Errors: WriteFailed."""
    console = writes.console
    console.forget()
    groups = await facts.groups(console)
    chosen = values.get("topic", "")
    lags = [
        lag
        for lag in await facts.with_ends(console, groups.by_group.get(values.get("group", ""), []))
        if lag.end is not None and chosen in ("", lag.topic)
    ]
    partitions: dict[str, list[int]] = {}
    for lag in lags:
        partitions.setdefault(lag.topic, []).append(lag.partition)
    first = await facts.offsets(console, partitions, EARLIEST)
    to, at = values.get("to", ""), values.get("at", "").strip()
    by_time: dict[str, dict[int, int]] = {}
    if to == "time":
        try:
            time_ms = unix_ms(at)
        except ValueError:
            raise WriteFailed(f"“{at}” is not a time such as 2026-01-31T12:00.") from None
        by_time = await facts.offsets(console, partitions, time_ms)
    elif to in ("offset", "shift"):
        try:
            int(at)
        except ValueError:
            raise WriteFailed(f"“{at}” is not a number.") from None
    elif to not in TARGETS:
        raise WriteFailed("Choose where the offsets are to be set to.")
    rows = []
    for lag in lags:
        end = lag.end or 0
        start = first.get(lag.topic, {}).get(lag.partition, 0)
        if to == "earliest":
            after = start
        elif to == "latest":
            after = end
        elif to == "time":
            after = by_time.get(lag.topic, {}).get(lag.partition, end)
        else:
            after = int(at) if to == "offset" else lag.committed + int(at)
        after = min(max(after, start), end)
        rows.append(Preview(lag.topic, lag.partition, lag.committed, after, end))
    rows.sort(key=lambda row: (row.topic, row.partition))
    return rows


async def reset(writes: ConsoleForms, values: Values) -> str:
    """Commit the offsets of the preview."""
    rows = await resets(writes, values)
    if not rows:
        raise WriteFailed("There is nothing to reset: no offset is committed of what you chose.")
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=row.partition, committed_offset=row.after, committed_metadata=""
            )
        )
    group = values.get("group", "")
    response = await writes.console.ask(
        OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=found)
                for name, found in by_topic.items()
            ],
        ),
        8,
        (await facts.groups(writes.console)).coordinators.get(group),
    )
    errors = {row.error_code for topic in response.topics for row in topic.partitions} - {0}
    if errors:
        words = ", ".join(said(code) for code in sorted(errors))
        raise WriteFailed(f"Not done: {words}. A group with members cannot be reset.")
    logger.info("console: reset %d offsets of group %s", len(rows), group)
    return "/console/group?" + urlencode({"id": group})


# -- transactions


async def show_abort(writes: ConsoleForms, values: Values) -> WriteForm:
    """The form for ending another client's transaction."""
    name = values.get("id", "")
    return WriteForm(
        f"Abort the transaction of {name}?",
        "Its records will be marked as aborted, and its producer is fenced: it cannot continue and has to be restarted.",
        "Abort the transaction",
        [FormField("id", "", name, "hidden")],
        "transactions",
        "/console/transactions",
        danger=True,
    )


async def abort(writes: ConsoleForms, values: Values) -> str:
    """Fence the producer, which aborts its open transaction. Source: Admin.fenceProducers."""
    name = values.get("id", "")
    if not name:
        raise WriteFailed("Not done: no transactional id is named.")
    ended_s = time.monotonic() + 10
    listed = await transactions.listed(writes.console)
    coordinator = next((row.coordinator for row in listed[0] if row.id == name), None)
    while True:
        response = await writes.console.ask(
            InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000),
            to=coordinator,
        )
        if response.error_code != CONCURRENT_TRANSACTIONS or time.monotonic() > ended_s:
            break
        await asyncio.sleep(0.05)
    check(response.error_code)
    logger.info("console: aborted the transaction of %s", name)
    return "/console/transactions"
