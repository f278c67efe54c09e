"""What `_native.pyx` offers; __init__.py says when it is there."""

from collections.abc import Callable, Collection
from typing import Any

Buffer = bytes | bytearray | memoryview

SOURCE: str
LAYOUTS: dict[str, tuple[tuple[int, ...], int]]

class KeyTable:
    count: int
    def __init__(
        self,
        most: int,
        seed: list[int],
        crc32c: Callable[..., int],
        body_of: Callable[[int, memoryview], bytes],
        with_records: Callable[[memoryview, bytes, int, int], bytes],
    ) -> None: ...
    def get(self, key: bytes, put: int = ...) -> int: ...
    def take(
        self,
        window: memoryview,
        at: int,
        usual: int,
        notes: bool,
        first: int,
        latest: int,
        now_ms: int,
    ) -> tuple[int, list[tuple[Buffer | None, int, int, int, int]]]: ...

class ProducePath:
    def __init__(
        self,
        crc32c: Callable[..., int],
        batch_metadata: Callable[[tuple[int, ...]], object],
        append_info: Callable[[tuple[int, ...]], object],
        internal: Collection[str],
        pwrite: Callable[..., int],
        classes: tuple[type, type, type],
    ) -> None: ...
    def answer(
        self,
        frame: memoryview,
        at: int,
        version: int,
        partitions: dict[Any, Any],
        now_ms: int,
        metadata: Callable[[], Any],
    ) -> tuple[bytes, int] | list[Any] | None: ...

def as_seen(seen: list[Any]) -> bool: ...
def asked_by(partitions: dict[Any, Any]) -> list[Any]: ...
def check_batch(
    batch: Buffer,
    now_ms: int,
    before_ms: int,
    after_ms: int,
    max_bytes: int,
    reads: bool,
    needs_keys: bool,
) -> tuple[int, int, int, int, int, int, int, int, bool] | None: ...
def read_partitions(
    asked_of: dict[Any, Any],
    partitions: dict[Any, Any],
    by_id: object,
    read_committed: bool,
    leader_only: bool,
    budget: int,
    always_one_batch: bool,
    may_wait: bool,
    no_error: object,
    result_of: object,
) -> tuple[list[Any], int, bool, list[Any]] | None: ...
def take_fetch(
    frame: Buffer, at: int, version: int, sessions: dict[int, Any], fetched_partition: type
) -> tuple[Any, ...] | None: ...
def write_rows(version: int, rows: list[Any]) -> tuple[list[Any], list[Any]] | None: ...
