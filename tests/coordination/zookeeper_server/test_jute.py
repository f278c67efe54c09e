"""The codec against bytes written by hand, and against itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.coordination.acl import OPEN, AclId, ZnodeAclEntry
from server.coordination.store import Stat
from server.coordination.zookeeper_server import jute
from server.coordination.zookeeper_server.jute import JuteError, JuteReader, JuteType
from server.coordination.zookeeper_server.records import (
    LAYOUTS,
    MULTI_OPS,
    ConnectRequest,
    ConnectResponse,
    CreateRequest,
    GetDataReply,
    IntReply,
    MultiOp,
    OpCode,
    ReplyHeader,
    VersionRequest,
    WatcherEvent,
    decode,
    decode_multi,
    encode,
    encode_multi,
)

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=5))
IDS = st.builds(AclId, st.text(max_size=3), st.text(max_size=3))
STATS = st.builds(
    Stat,
    LONGS,
    LONGS,
    LONGS,
    LONGS,
    INTS,
    INTS,
    LONGS,
    INTS,
    LONGS,
    aversion=INTS,
    data_length=INTS,
)
ENTRIES = st.builds(ZnodeAclEntry, INTS, IDS)
VALUES: dict[JuteType, st.SearchStrategy[Any]] = {
    jute.BOOLEAN: st.booleans(),
    jute.INT32: INTS,
    jute.INT64: LONGS,
    jute.BUFFER: st.one_of(st.none(), st.binary(max_size=5)),
    jute.STRING: TEXT,
    jute.STRINGS: st.one_of(st.none(), st.lists(TEXT, max_size=3).map(tuple)),
    jute.STAT_RECORD: STATS,
    jute.ACL_LIST: st.one_of(st.none(), st.lists(ENTRIES, max_size=3).map(tuple)),
}


def values(record: type) -> st.SearchStrategy[Any]:
    """Any record of a type; vectors of ids are the only layout that is not in `VALUES`."""
    fields = [VALUES.get(field, st.lists(IDS).map(tuple)) for field in LAYOUTS[record]]
    return st.tuples(*fields).map(lambda drawn: record(*drawn))


@pytest.mark.parametrize("record", LAYOUTS, ids=lambda record: record.__name__)
def test_what_is_encoded_is_decoded_and_every_prefix_is_refused(record: type) -> None:
    @given(values(record))
    def check(value: Any) -> None:
        data = encode(value)
        reader = JuteReader(data)
        assert decode(record, reader) == value
        assert reader.at_end()
        for size in range(len(data)):
            with pytest.raises(JuteError):
                decode(record, JuteReader(data[:size]))

    check()


def test_records_have_zookeepers_bytes() -> None:
    request = ConnectRequest(0, 7, 10_000, 0, bytes(16))
    assert encode(request).hex() == (
        "00000000000000000000000700002710000000000000000000000010" + "00" * 16
    )
    response = ConnectResponse(0, 4000, 0x100000001, b"\x01" * 16)
    assert encode(response).hex() == ("0000000000000fa0000000010000000100000010" + "01" * 16)
    create = CreateRequest("/a", b"x", OPEN, 1)
    assert encode(create).hex() == (
        "00000002" "2f61" "00000001" "78" "00000001" "0000001f"
        "00000005" "776f726c64" "00000006" "616e796f6e65" "00000001"
    )  # fmt: skip
    reply = GetDataReply(None, Stat(1, 2, 3, 4, 5, 6, 7, 8, 9, aversion=10, data_length=11))
    assert encode(ReplyHeader(1, 2, 0), reply).hex() == (
        "00000001" "0000000000000002" "00000000" "ffffffff"
        "0000000000000001" "0000000000000002" "0000000000000003" "0000000000000004"
        "00000005" "00000006" "0000000a" "0000000000000007" "0000000b" "00000008" "0000000000000009"
    )  # fmt: skip
    event = encode(ReplyHeader(-1, -1, 0), WatcherEvent(3, 3, "/a"))
    assert event.hex() == "ffffffff" + "f" * 16 + "000000000000000300000003000000022f61"


def test_multi_ends_with_a_header_that_says_so() -> None:
    results = [MultiOp(OpCode.DELETE, None), MultiOp(OpCode.ERROR, IntReply(-101))]
    assert encode_multi(results).hex() == (
        "000000020000000000ffffffff00ffffff9bffffff9bffffffff01ffffffff"
    )


def test_multi_with_a_read_is_refused() -> None:
    data = encode_multi([MultiOp(OpCode.GET_DATA, VersionRequest("/a", 0))])
    with pytest.raises(JuteError, match="type 4"):
        list(decode_multi(JuteReader(data), MULTI_OPS))


def test_vector_that_announces_more_than_there_is_takes_no_memory() -> None:
    with pytest.raises(JuteError, match="vector of 2147483647"):
        jute.STRINGS.read(JuteReader(b"\x7f\xff\xff\xff"))
