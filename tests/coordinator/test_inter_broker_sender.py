"""Requests to other brokers whose failure cannot be processed."""

from __future__ import annotations

import asyncio

from server.coordinator.common.inter_broker_sender import InterBrokerSender
from tests.support.replicas import turns


class Sender:
    """A sender whose requests fail when the test asks for it, as does the processing of each failure."""

    def __init__(self) -> None:
        self.sent: list[asyncio.Future[None]] = []
        self.failed: list[list[str]] = []
        self.sender = InterBrokerSender[str](self.send, self.fail)

    async def send(self, broker_id: int, items: list[str]) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.sent.append(answer)
        await answer

    def fail(self, items: list[str]) -> None:
        self.failed.append(items)
        raise ZeroDivisionError("a bug")


def test_items_are_sent_after_a_failure_that_could_not_be_processed() -> None:
    async def test() -> None:
        room = Sender()
        for number, item in enumerate("ab"):
            room.sender.add(1, item)
            await turns()
            room.sent[number].set_exception(OSError("lost"))
            await turns()
        assert room.failed == [["a"], ["b"]]

    asyncio.run(test())


def test_each_broker_that_is_gone_fails_its_items_whatever_becomes_of_the_others() -> None:
    async def test() -> None:
        room = Sender()
        room.sender.add(1, "a")
        room.sender.add(2, "b")
        await turns()
        room.sender.keep(())
        assert room.failed == [["a"], ["b"]]

    asyncio.run(test())
