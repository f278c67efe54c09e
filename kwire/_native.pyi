"""What `_native.pyx` offers; kwire/native.py says when it is there."""

Buffer = bytes | bytearray | memoryview

SOURCE: str

def walk_records(body: Buffer, count: int) -> tuple[int, int, int, bool, bool] | None: ...
