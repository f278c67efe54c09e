"""The client's end of a connection against the broker's, with no socket between."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.codec import decode, encode
from kwire.connection import ClientConnection, ServerConnection, response_frame
from kwire.errors import BadLength, WireError
from kwire.framing import FrameReader, PlainMemory
from kwire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kwire.messages.metadata import MetadataRequest, MetadataResponse
from kwire.messages.produce import ProduceRequest

FETCH, METADATA = 17, 12


def deliver(client: ClientConnection, data: bytes, piece: int = 1 << 30) -> list[object]:
    """Pass bytes to a client, in pieces of this size, and return the resulting messages."""
    view, messages = memoryview(data), []
    while view:
        buffer = client.get_buffer()
        count = min(piece, len(buffer), len(view))
        buffer[:count] = view[:count]
        view = view[count:]
        client.received(count)
        while (response := client.next_response()) is not None:
            messages.append(response.message())
    return messages


def fetched(size: int) -> FetchResponse:
    row = PartitionData(partition_index=0, records=bytes([size % 251]) * size)
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(16), partitions=[row])])


def reply(correlation_id: int, size: int) -> bytes:
    return b"".join(response_frame(correlation_id, True, [encode(fetched(size), FETCH)]))


@given(
    sizes=st.lists(st.integers(0, 20) | st.integers(0, 200_000), min_size=1, max_size=6),
    piece=st.integers(1, 400_000) | st.integers(900, 100_000),
)
@settings(max_examples=30, deadline=None)
def test_responses_come_out_whole_and_lasting_however_they_are_cut(
    sizes: list[int], piece: int
) -> None:
    client = ClientConnection("c")
    ids = [client.request(FetchRequest(topics=[]), FETCH) for _ in sizes]
    data = b"".join(map(reply, ids, sizes))
    messages = deliver(client, data, max(piece, sum(sizes) // 300))
    # Checked after everything has arrived: none is in memory into which a later one was received.
    assert messages == [fetched(size) for size in sizes]
    assert client.pending == 0


def test_what_the_client_writes_is_what_the_broker_reads() -> None:
    client = ClientConnection("somebody")
    broker = ServerConnection(FrameReader(PlainMemory(), 1000))
    client.request(MetadataRequest(topics=[]), METADATA)
    client.request(ProduceRequest(acks=0, topic_data=[]), 9, answered=False)
    client.request_of(3, METADATA, [encode(MetadataRequest(topics=None), METADATA)])
    broker.frames.feed(b"".join(client.take_output()))
    found = [broker.next_request() for _ in range(3)]
    assert broker.next_request() is None and client.take_output() == []
    assert [
        (each.api_key, each.api_version, each.correlation_id, each.client_id)
        for each in found
        if each is not None
    ] == [(3, 12, 1, "somebody"), (0, 9, 2, "somebody"), (3, 12, 3, "somebody")]
    last = found[2]
    assert last is not None
    assert decode(MetadataRequest, last.frame, METADATA, last.body_offset).topics is None
    for number, request in enumerate(found):
        assert request is not None
        body = encode(MetadataResponse(cluster_id=str(number)), METADATA)
        frame = response_frame(request.correlation_id, True, [body])
        broker.reply(request, () if request.api_key == 0 else frame)
    answers = deliver(client, b"".join(broker.take_output()))
    assert [getattr(each, "cluster_id", None) for each in answers] == ["0", "2"]


def test_large_response_is_received_where_it_stays() -> None:
    client = ClientConnection("c")
    data = reply(client.request(FetchRequest(topics=[]), FETCH), 1_000_000)
    deliver(client, data[:70_000])
    left = client.get_buffer()
    assert len(left) > 900_000  # the rest of this frame, and not a byte more
    (message,) = deliver(client, data[len(data) - len(left) :])
    assert isinstance(message, FetchResponse)
    records = message.responses[0].partitions[0].records
    assert isinstance(records, memoryview) and records.obj is left.obj


def test_response_that_nobody_asked_for_is_an_error() -> None:
    client = ClientConnection("c")
    with pytest.raises(WireError, match="a response without a request"):
        deliver(client, reply(1, 10))


def test_response_to_another_request_is_an_error() -> None:
    client = ClientConnection("c")
    asked = client.request(FetchRequest(topics=[]), FETCH)
    with pytest.raises(WireError, match=f"response {asked + 1} to request {asked}"):
        deliver(client, reply(asked + 1, 10))


@pytest.mark.parametrize("size", [-1, 1001])
def test_response_of_a_size_that_cannot_be_is_an_error(size: int) -> None:
    client = ClientConnection("c", max_response_bytes=1000)
    client.request(FetchRequest(topics=[]), FETCH)
    with pytest.raises(BadLength, match=str(size)):
        deliver(client, size.to_bytes(4, "big", signed=True))


def test_message_that_is_no_request_is_refused() -> None:
    with pytest.raises(ValueError, match="PartitionData"):
        ClientConnection("c").request(PartitionData(), FETCH)


def test_correlation_ids_start_again_before_they_become_negative() -> None:
    client = ClientConnection("c")
    client._last_id = 0x7FFFFFFE
    ids = [client.request(MetadataRequest(topics=[]), METADATA) for _ in range(2)]
    assert ids == [0x7FFFFFFF, 0]
