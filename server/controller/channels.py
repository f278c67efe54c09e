"""The controller's messages to other brokers: for each broker a queue and a task, in order.

One request at a time is sent, and is retried until it is answered. No request is skipped, since each message builds on
the earlier ones.
Source: ControllerChannelManager.scala (RequestSendThread).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from ..metadata.image import BrokerRegistration
from .messages import ControlRequest, version_of

logger = logging.getLogger(__name__)

#: The delay between two attempts. Source: RequestSendThread.backoff.
RETRY_S = 0.1
#: The number of attempts before a warning: Apache Kafka registers a broker before it listens.
WARN_TRIES = 10


class Channel(Protocol):
    """A connection to one broker, opened on first use."""

    async def send(self, request: Any, api_version: int) -> Any:
        """Send a request and return its response. Errors: OSError; the next call connects again."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


#: Opens the channel to a broker.
OpenChannel: TypeAlias = Callable[[BrokerRegistration], Channel]
#: Called with each answer: broker, request and response.
Answered: TypeAlias = Callable[[BrokerRegistration, ControlRequest, Any], None]


class ControllerChannels:
    """The channels of one controller in one epoch."""

    def __init__(self, open_channel: OpenChannel, answered: Answered) -> None:
        self._open_channel = open_channel
        self._answered = answered
        self._lines: dict[int, BrokerLine] = {}

    def keep(self, brokers: Mapping[int, BrokerRegistration]) -> None:
        """Close the channels of brokers that are gone or were restarted, and drop their queues."""
        for broker_id, line in list(self._lines.items()):
            broker = brokers.get(broker_id)
            if broker is None or broker.epoch != line.broker.epoch:
                line.close()
                del self._lines[broker_id]

    def send(self, broker: BrokerRegistration, requests: Sequence[ControlRequest]) -> None:
        """Queue requests for a broker."""
        line = self._lines.get(broker.id)
        if line is None:
            channel = self._open_channel(broker)
            line = self._lines[broker.id] = BrokerLine(broker, channel, self._answered)
        line.put(requests)

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything is answered, or the time limit has passed."""
        busy = [line.task for line in self._lines.values() if line.task is not None]
        if busy:
            await asyncio.wait(busy, timeout=timeout_s)

    def close(self) -> None:
        """Send nothing more."""
        for line in self._lines.values():
            line.close()
        self._lines.clear()


class BrokerLine:
    """The messages for one process of a broker."""

    def __init__(self, broker: BrokerRegistration, channel: Channel, answered: Answered) -> None:
        self.broker = broker
        self._channel = channel
        self._answered = answered
        self._queue: deque[ControlRequest] = deque()
        self.task: asyncio.Task[None] | None = None

    def put(self, requests: Sequence[ControlRequest]) -> None:
        """Add requests to the queue."""
        self._queue.extend(requests)
        if self.task is None and self._queue:
            name = f"controller to broker {self.broker.id}"
            self.task = asyncio.get_running_loop().create_task(self._send_all(), name=name)

    def close(self) -> None:
        """Send nothing more."""
        if self.task is not None:
            self.task.cancel()
            self.task = None
        self._queue.clear()
        self._channel.close()

    async def _send_all(self) -> None:
        while self._queue:
            request = self._queue[0]
            response = await self._send(request)
            self._queue.popleft()
            try:
                self._answered(self.broker, request, response)
            except Exception:
                # No exception may end this task; later messages would never be sent.
                logger.exception("Cannot process an answer of broker %d", self.broker.id)
        self.task = None

    async def _send(self, request: ControlRequest) -> Any:
        tries = 0
        while True:
            try:
                response = await self._channel.send(request, version_of(request))
            except Exception as error:  # noqa: BLE001 - as above
                tries += 1
                if tries == WARN_TRIES:
                    logger.warning(
                        "Cannot reach broker %d, retrying until it is gone: %s",
                        self.broker.id,
                        error,
                    )
                await asyncio.sleep(RETRY_S)
            else:
                if tries >= WARN_TRIES:
                    logger.info("Broker %d can be reached again", self.broker.id)
                return response
