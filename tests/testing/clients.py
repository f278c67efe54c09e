"""Stock clients (confluent-kafka) for the tests of kwire.testing, with short waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer

from kwire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from kwire.testing import Broker

T = TypeVar("T")


def dotted(settings: dict[str, Any]) -> dict[str, Any]:
    """librdkafka's names of settings; callbacks have underscores there too."""
    return {
        name if name.endswith("_cb") else name.replace("_", "."): value
        for name, value in settings.items()
    }


def producer(bootstrap: str, **settings: Any) -> Producer:
    """A producer that sends immediately."""
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            "retry.backoff.max.ms": 20,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "log_level": 0,
            **dotted(settings),
        }
    )


def send(client: Producer, topic: str, value: bytes = b"v", timeout_s: float = 10.0) -> Message:
    """Send a record and return its delivery. Errors: KafkaException."""
    delivered: list[Any] = []
    client.produce(
        topic, value, on_delivery=lambda error, message: delivered.append((error, message))
    )
    client.flush(timeout_s)
    assert delivered, "nothing was reported"
    error, message = delivered[0]
    if error is not None:
        raise KafkaException(error)
    return message


@contextmanager
def consumer(bootstrap: str, group: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer, closed at the end. A setting of None is left to the client."""
    given = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 50,
        "fetch.error.backoff.ms": 10,
        "retry.backoff.ms": 10,
        "retry.backoff.max.ms": 20,
        "heartbeat.interval.ms": 100,
        "reconnect.backoff.ms": 10,
        "reconnect.backoff.max.ms": 20,
        "log_level": 0,
        **dotted(settings),
    }
    client = Consumer({name: value for name, value in given.items() if value is not None})
    try:
        yield client
    finally:
        client.close()


def polling(client: Any, condition: Callable[[], T]) -> Callable[[], T]:
    """A condition that is checked after the client has polled, regardless of the result."""

    def look() -> T:
        client.poll(0.02)
        return condition()

    return look


def read(client: Consumer, count: int, timeout_s: float = 10.0) -> list[bytes | None]:
    """The values of the next records. Errors: AssertionError if fewer arrive in time."""
    values: list[bytes | None] = []
    waited = 0.0
    while len(values) < count and waited < timeout_s:
        message = client.poll(0.1)
        if message is None:
            waited += 0.1
        elif message.error() is None:
            values.append(message.value())
    assert len(values) == count, values
    return values


def set_quota(broker: Broker, client_id: str, rate: float) -> None:
    """Limit a client's rate of producing, in bytes per second."""
    entry = AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[OpData(key="producer_byte_rate", value=rate, remove=False)],
    )
    answer = broker.client.ask(AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert answer.entries[0].error_code == 0
