"""Why a record is invisible, a group lags or a transaction blocks others: the rules of `kwire explain` inside the
broker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..client.asking import Ask, Asking
from ..client.errors import Unavailable
from ..explain.answers import Answer
from ..explain.group_rules import explain_group
from ..explain.live_groups import group_facts
from ..explain.live_records import record_facts
from ..explain.live_transactions import transaction_facts
from ..explain.record_rules import explain_record
from ..explain.transaction_rules import explain_transaction
from .console import Console, PageRefused
from .listing import number_in
from .messages import read_records

if TYPE_CHECKING:
    from starlette.requests import Request


async def gather(console: Console, request: Request) -> dict[str, Any]:
    """The form, and the answers to its question."""
    query = request.query_params
    topic, group, transactional_id = (
        query.get(name, "").strip() for name in ("topic", "group", "transactional_id")
    )
    partition, offset = number_in(query.get("partition"), 0), number_in(query.get("offset"), -1)
    now_ms = console.broker.clock.now_ms()
    answers: list[Answer] = []
    try:
        if group:
            facts = await run(console, group_facts(group, now_ms))
            answers = explain_group(facts)
        elif transactional_id:
            found = await run(console, transaction_facts(transactional_id, now_ms))
            answers = [explain_transaction(found)]
        elif topic and offset >= 0:
            answers = [
                explain_record(await run(console, record_facts(topic, partition, offset, now_ms)))
            ]
    except Unavailable as error:
        raise PageRefused(503, "Cannot be explained here", f"{error}.") from None
    return {
        "answers": answers,
        "topic": topic,
        "partition": partition,
        "offset": "" if offset < 0 else str(offset),
        "group": group,
        "transactional_id": transactional_id,
    }


async def run(console: Console, asking: Asking[Any]) -> Any:
    """Answer the questions of the rules; the rules themselves run in a thread. Errors: Unavailable."""
    in_thread = console.broker.executor.in_thread
    ended, value = await in_thread(step, partial(next, asking))
    while not ended:
        try:
            response = await answer(console, value)
        except Unavailable as error:
            ended, value = await in_thread(step, partial(asking.throw, error))
        else:
            ended, value = await in_thread(step, partial(asking.send, response))
    return value


def step(go_on: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether the rules have ended, and their next question or their result."""
    try:
        return False, go_on()
    except StopIteration as end:
        return True, end.value


async def answer(console: Console, ask: Ask) -> Any:
    """Send the question to the broker that the rules name, or to this one. Errors: Unavailable if another broker does
    not answer.
    """
    try:
        response = await console.ask(ask.request, ask.max_version, ask.to)
    except PageRefused as error:
        if ask.to in (None, console.broker.node_id):
            raise
        raise Unavailable(f"broker {ask.to} is to say that: {error}".rstrip(".")) from None
    for topic in getattr(response, "responses", ()):
        for row in getattr(topic, "partitions", ()):
            if hasattr(row, "records"):
                row.records = await read_records(console, row)
    return response
