"""What `_native.pyx` offers; kwire/native.py says when it is there."""

from collections.abc import Callable
from typing import Any

Buffer = bytes | bytearray | memoryview

SOURCE: str

class StructDecoder:
    def __init__(
        self,
        cls: type,
        fields: list[tuple[Any, ...]],
        tagged: bool,
        has_records: bool = False,
        most: int = ...,
        otherwise: Callable[[Any, int, int], tuple[Any, int]] | None = None,
    ) -> None: ...
    def decode(self, buffer: Buffer, pos: int, end: int) -> tuple[Any, int]: ...

def read_fields(data: object, bodies: object, into: object) -> bool: ...
def walk_records(body: Buffer, count: int) -> tuple[int, int, int, bool, bool] | None: ...
