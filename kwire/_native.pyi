"""What `_native.pyx` offers; kwire/native.py says when it is there."""

Buffer = bytes | bytearray | memoryview

SOURCE: str

def append_record_ends(data: Buffer, at: int, end: int, count: int, ends: list[int]) -> bool: ...
def check_batch(
    records: Buffer,
    now_ms: int,
    before_ms: int,
    after_ms: int,
    max_bytes: int,
    reads: bool,
    needs_keys: bool,
) -> tuple[int, int, int, int, int, int, int, int, bool] | None: ...
def copy_records(body: bytes, numbers: list[int]) -> tuple[bytes, int] | None: ...
def record_heads(
    body: bytes, count: int, last_offset_delta: int
) -> tuple[list[int], list[bytes | None], list[int], list[int]] | None: ...
def read_fields(data: object, starts: object, ends: object, into: object) -> bool: ...
def walk_records(body: Buffer, count: int) -> tuple[int, int, int, bool, bool] | None: ...
