"""Which pages may ask this server: its own, and links to it.

A page of another site, open in the same browser, cannot read what is served here, but it could ask for it many times, and each
scrape or search costs. A browser says of each request whose page makes it, and what for (Source: W3C Fetch Metadata);
whoever says nothing is no browser.
"""

from __future__ import annotations

from collections.abc import Mapping

OWN_SITES = ("same-origin", "none")


def is_of_other_site(headers: Mapping[str, str]) -> bool:
    """Whether a page of another site makes the request, and it is not that somebody follows a link there.

    Shape: header names are in lower case.
    """
    if headers.get("sec-fetch-site", "none") in OWN_SITES:
        return False
    is_link = headers.get("sec-fetch-mode") == "navigate"
    return not (is_link and headers.get("sec-fetch-dest") == "document")
