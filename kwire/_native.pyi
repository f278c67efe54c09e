"""What `_native.pyx` offers; kwire/native.py says when it is there."""

Buffer = bytes | bytearray | memoryview

SOURCE: str

def copy_records(body: bytes, numbers: list[int]) -> tuple[bytes, int] | None: ...
def record_heads(
    body: bytes, count: int, last_offset_delta: int
) -> tuple[list[int], list[bytes | None], list[int], list[int]] | None: ...
def walk_records(body: Buffer, count: int) -> tuple[int, int, int, bool, bool] | None: ...
