"""Which pages may send requests to this server: its own, and links to it.

A page of another site, open in the same browser, cannot read this server's responses, but it could send many requests,
each of which costs a scrape or a search. A browser states for each request which site makes it and for what purpose
(Source: W3C Fetch Metadata); a client that does not is no browser.
"""

from __future__ import annotations

from collections.abc import Mapping

OWN_SITES = ("same-origin", "none")


def is_of_other_site(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site makes the request, other than by a link that the user follows.

    Shape: header names are in lower case.
    """
    if headers.get("sec-fetch-site", "none") in OWN_SITES:
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate"
    return not (is_link and headers.get("sec-fetch-dest") == "document")
