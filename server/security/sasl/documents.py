"""Small documents that OAUTHBEARER reads from a file or an HTTP server: key sets, and tokens for own logins.

All functions here block, and are called in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

if TYPE_CHECKING:
    from http.client import HTTPMessage

#: The maximum size of a document; key sets and tokens have a few KiB.
MAX_BYTES = 1 << 20
#: The maximum size of all that is received for it, with headers, redirects, and the sizes of chunks.
MAX_RECEIVED = 4 << 20
#: The time limit of the whole document, from the search for its server on.
FETCH_TIMEOUT_MS = 10_000


class FetchFailed(Exception):
    """A document could not be read; the text names the URL without user, password and query."""


def without_secrets(url: str) -> str:
    """A URL for messages: without user, password, query and fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class SameScheme(HTTPRedirectHandler):
    """Follows redirects only within the same scheme, as Java does: never from https: to http:.

    Another server gets no credentials.
    """

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        if urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            raise HTTPError(newurl, code, "a redirect to another scheme", headers, fp)
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and redirected.host != req.host:
            redirected.remove_header("Authorization")
        return redirected


def read_url(url: str, monotonic_ms: Callable[[], int], ca_file: str | None = None) -> bytes:
    """Read a small document at a file:, http: or https: URL; blocks, within the limits above.

    Shape: `ca_file` has the certificates (PEM) that must have issued the server's; None for those of the system.
    Errors: FetchFailed.
    """
    return read_request(Request(url), monotonic_ms, ca_file)


def read_request(
    request: Request, monotonic_ms: Callable[[], int], ca_file: str | None = None
) -> bytes:
    """The same for any request. Errors: FetchFailed."""
    from http.client import HTTPException

    from ...deadline_http import Deadline

    shown = without_secrets(request.full_url)
    if request.host:
        request.host = request.host.rpartition("@")[2]  # Java sends no user and password either
    data = bytearray()
    try:
        deadline = Deadline(monotonic_ms, FETCH_TIMEOUT_MS, MAX_RECEIVED)
        context = None
        if request.type == "https":
            import ssl

            context = ssl.create_default_context(cafile=ca_file)
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as Java, and Python before 3.13
        with build_opener(SameScheme, *deadline.handlers(context)).open(request) as response:
            while part := response.read(16384):
                data += part
                if len(data) > MAX_BYTES:
                    raise FetchFailed(f"{shown} is larger than {MAX_BYTES} bytes")
                deadline.left_s()  # a file may be a pipe
    except HTTPError as error:  # it keeps the response open
        error.close()
        raise FetchFailed(f"{shown} cannot be read: {error}") from error
    except (OSError, HTTPException, ValueError) as error:  # URLError is an OSError
        raise FetchFailed(f"{shown} cannot be read: {type(error).__name__}: {error}") from error
    return bytes(data)
