"""JSON that others have written: tokens, nodes, files, requests for tests."""

from __future__ import annotations

import json
from typing import Any


def parse_json(data: bytes | str, **options: Any) -> Any:
    """Like `json.loads`, but every text that it returns is Unicode, and so can be sent, stored and logged.

    JSON's `\\ud800`, half of a character, is no text in UTF-8, and Python would return it.
    Errors: ValueError, RecursionError.
    """
    document = json.loads(data, **options)
    # Without the "u": in UTF-16 and UTF-32, which Python reads too, zero bytes come between the two.
    backslash: Any = "\\" if isinstance(data, str) else b"\\"
    if backslash in data or not data.isascii():
        json.dumps(document, ensure_ascii=False).encode()
    return document
