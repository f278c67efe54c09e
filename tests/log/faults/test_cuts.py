"""A log truncated at any byte of its last batches, or of any other file, opens correctly."""

from __future__ import annotations

import os

import pytest

from kwire.records.compression import Codec

from .cuts import Original, check_all
from .expected import Violation

#: Opening a log reads heads and checksums, which are the same for each codec; batches of one are shorter.
LONG = os.environ.get("KWIRE_LONG", "") not in ("", "0")
CODECS = list(Codec)[1:] if LONG else [Codec.ZSTD]


@pytest.mark.parametrize(
    "codec", [Codec.NONE, *(pytest.param(c, marks=pytest.mark.slow) for c in CODECS)]
)
def test_cut_at_every_byte_leaves_all_whole_batches_before_it(codec: int) -> None:
    before = len(os.listdir("/dev/fd"))
    assert check_all(codec) > 500
    # PySpark's select(), in later tests of this process, supports no descriptor above 1023.
    assert len(os.listdir("/dev/fd")) < before + 100


def test_a_damaged_byte_below_the_cut_is_noticed() -> None:
    """Shows that the check can fail, if the bytes before the cut are not those that were written."""
    original = Original(Codec.NONE)
    node = original.disk.find(original.log_path)
    node.data[20] ^= 1  # type: ignore[union-attr]
    with pytest.raises(Violation, match="records up to"):
        original.check(original.log_path, original.size)
