"""The fuzz target of connections, with seeds and with requests modified by Hypothesis."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import fuzz_connection
from tests.net.echo import request


@pytest.fixture(autouse=True, scope="module")
def mistakes_are_raised() -> Iterator[None]:
    handler = fuzz_connection.Mistakes()
    logger = logging.getLogger("server")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


frames = st.one_of(
    st.binary(max_size=60).map(lambda body: struct.pack(">i", len(body)) + body),
    st.builds(
        request,
        st.integers(-(2**31), 2**31 - 1),
        st.binary(max_size=40),
        st.sampled_from([18, 18, 0, 1, 3, 7, 999, -1]),
        st.integers(-1, 6),
    ),
    st.binary(max_size=30),
)


@given(piece=st.integers(0, 300), parts=st.lists(frames, max_size=8))
def test_any_bytes_cost_at_most_the_connection(piece: int, parts: list[bytes]) -> None:
    fuzz_connection.fuzz_one(struct.pack(">H", piece) + b"".join(parts))


def test_mistake_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(fuzz_connection.api_versions, "function", broken)
    with pytest.raises(ZeroDivisionError):
        fuzz_connection.fuzz_one(b"\0\0" + request(1, key=18, version=0))
