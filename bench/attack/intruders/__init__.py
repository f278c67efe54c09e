"""Attempts of an intruder: logins that are skipped, forged or borrowed.

Each attack yields what it has tried and whether it succeeded. `floods.py` has the attacks that try to bring the broker
down.
"""

from __future__ import annotations

from collections.abc import Callable

from ..doors import SecuredKwire
from .attempt import Tried
from .certificates import certificates
from .disclosure import http_requests, secrets_shown
from .groups import groups_of_others
from .json_web_tokens import signed_tokens
from .logins import again_as_another, every_api_before_login, steps_of_the_login
from .names import names_close_to_others
from .permissions import without_permission

ATTACKS: dict[str, Callable[[SecuredKwire], Tried]] = {
    "Every API in every version before the login": every_api_before_login,
    "Steps of a login skipped, repeated, pipelined, oversized, replayed": steps_of_the_login,
    "Login again as another, with another mechanism, unfinished": again_as_another,
    "Names of users, topics, quotas and ACLs that imitate others": names_close_to_others,
    "Requests without the permission; tokens of others": without_permission,
    "Share groups and consumer groups of others": groups_of_others,
    "Forged and borrowed JSON Web Tokens": signed_tokens,
    "Client certificates, names in them, old TLS, a changed trust store": certificates,
    "HTTP: other names, methods, heads": http_requests,
    "Secrets in the log (DEBUG), configs, metrics, process, files": secrets_shown,
}
