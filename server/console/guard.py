"""Permission to change something: for browsers that were given the token, from the console's own pages. Pure.

A page of another site, open in the same browser, can send forms to this machine. Its requests have another Origin, or
none, and do not contain a session's code; they are refused.
"""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

COOKIE = "kwire_console"
#: How long a browser stays unlocked, and the maximum number of unlocked browsers.
SESSION_MS = 8 * 3_600_000
MAX_SESSIONS = 16
#: The maximum number of wrong tokens in a minute, from all browsers together.
MAX_FAILURES = 5
FAILURES_MS = 60_000


@dataclass(frozen=True)
class BrowserSession:
    """An unlocked browser. Shape: `code` is in its forms."""

    code: str
    until_ms: int


class Guard:
    """Keeps the sessions. Shape: `now_ms` never goes back."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._sessions: dict[str, BrowserSession] = {}
        self._failures: deque[int] = deque(maxlen=MAX_FAILURES)

    def unlock(self, token: str, now_ms: int) -> str | None:
        """The cookie of a new session; None if the token is wrong, or after too many wrong ones."""
        if self.is_blocked(now_ms):
            return None
        if not hmac.compare_digest(token.strip().encode(), self._token.encode()):
            self._failures.append(now_ms)
            return None
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))
        cookie = secrets.token_urlsafe(24)
        self._sessions[cookie] = BrowserSession(secrets.token_urlsafe(24), now_ms + SESSION_MS)
        return cookie

    def is_blocked(self, now_ms: int) -> bool:
        """Whether there were too many wrong tokens within the last minute."""
        failures = self._failures
        return len(failures) == MAX_FAILURES and now_ms - failures[0] < FAILURES_MS

    def lock(self, cookie: str) -> None:
        """End a session."""
        self._sessions.pop(cookie, None)

    def session(self, cookie: str, now_ms: int) -> BrowserSession | None:
        """The session of a cookie; None if there is none, or it has ended."""
        found = self._sessions.get(cookie)
        if found is not None and now_ms >= found.until_ms:
            del self._sessions[cookie]
            return None
        return found

    def refusal(
        self, headers: Mapping[str, str], cookie: str, code: str | None, now_ms: int
    ) -> str | None:
        """The reason to refuse a form; None if it is accepted. Shape: `code` is None where no session is needed yet."""
        if (reason := foreign(headers)) is not None:
            return reason
        if code is None:
            return None
        session = self.session(cookie, now_ms)
        if session is None:
            return "writing is locked in this browser"
        if not hmac.compare_digest(code.encode(), session.code.encode()):
            return "the form is of another session; open it again"
        return None


def foreign(headers: Mapping[str, str]) -> str | None:
    """The reason that a request is not from the console's own pages; None if it is. Shape: header names are in lower
    case.
    """
    site = headers.get("sec-fetch-site", "same-origin")
    if site != "same-origin":
        return f"the request was made by another site ({site})"
    origin = headers.get("origin", "")
    if not origin:
        return "the request does not say which site it was made by (Origin)"
    host = headers.get("host", "").lower()
    if not host or not is_origin_of(origin, host):
        return f"the request was made by another site ({origin[:100]})"
    return None


def is_origin_of(origin: str, host: str) -> bool:
    """Whether an Origin has this host and port. Shape: `host` is in lower case."""
    try:
        return urlsplit(origin).netloc.lower() == host
    except ValueError:  # not a URL
        return False
