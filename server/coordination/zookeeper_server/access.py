"""Access control: the schemes of ids, and the checks of lists and paths; pure.

Schemes: `world` (everybody), `auth` (stands for the ids of the client that sets the list), `digest` (user and password,
the latter as SHA-1 in base64) and `ip` (an IPv4 address or network). Omitted: `sasl` and `x509`, which a ZooKeeper
server also supports only with additional settings.
Source: PrepRequestProcessor.fixupACL, ZooKeeperServer.checkACL, the providers of server.auth, PathUtils.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import lru_cache

from ..acl import ANYONE, OPEN, Acl, AclId, ZnodeAclEntry
from ..store import StoreError
from .records import Code

SPECIAL_PATHS = frozenset({"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"})
#: Characters that a name may not contain: control characters, surrogates and private-use characters.
BAD_CHARACTERS = re.compile("[\0-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]")
RELATIVE = re.compile(r"/\.\.?(?:/|$)")
#: The maximum length of an access control list. A real server has no such limit, but each request on the node compares
#: the whole list with the client's ids.
MAX_ACL_ENTRIES = 1000
#: The maximum number of ids that a connection may have, and of characters in one of them.
MAX_IDS = 64
MAX_ID_CHARACTERS = 1024


class AccessRefused(StoreError):
    """A refusal with its own ZooKeeper error code."""

    def __init__(self, code: Code, path: str = "") -> None:
        super().__init__(path, code.name)
        self.code = code


def validate_path(path: str | None) -> str:
    """Refuse an invalid node path. Errors: AccessRefused (BAD_ARGUMENTS)."""
    if (
        not path
        or path[0] != "/"
        or (len(path) > 1 and path[-1] == "/")
        or "//" in path
        or BAD_CHARACTERS.search(path)
        or RELATIVE.search(path)
    ):
        raise AccessRefused(Code.BAD_ARGUMENTS, path or "")
    return path


def expand_acl(acl: Acl | None, ids: Iterable[AclId]) -> Acl | None:
    """The list as stored: without duplicates, `auth` expanded; None for the open one.

    Errors: AccessRefused (INVALID_ACL) for an empty or too long list, an unknown scheme or an invalid id.
    """
    if acl == OPEN:
        return None
    if acl is not None and len(acl) > MAX_ACL_ENTRIES:
        raise AccessRefused(Code.INVALID_ACL)
    expanded: list[ZnodeAclEntry] = []
    for entry in dict.fromkeys(acl or ()):
        scheme, id_ = entry.id
        if entry.id == ANYONE:
            expanded.append(entry)
        elif scheme == "auth":
            own = [
                ZnodeAclEntry(entry.perms, known) for known in ids if known.scheme in AUTHENTICATED
            ]
            if not own:
                raise AccessRefused(Code.INVALID_ACL)
            expanded += own
        elif scheme in VALID and VALID[scheme](id_):
            expanded.append(entry)
        else:
            raise AccessRefused(Code.INVALID_ACL)
        if len(expanded) > MAX_ACL_ENTRIES:
            raise AccessRefused(Code.INVALID_ACL)
    if not expanded:
        raise AccessRefused(Code.INVALID_ACL)
    return tuple(expanded)


def check_acl(acl: Acl | None, permission: int, ids: Collection[AclId]) -> None:
    """Refuse a client if the list does not grant it a permission. Errors: AccessRefused (NO_AUTH)."""
    if acl is None:
        return
    for perms, granted in acl:
        if not perms & permission:
            continue
        if granted == ANYONE or granted in ids:
            return
        if granted.scheme == "ip" and any(
            in_network(granted.id, known.id) for known in ids if known.scheme == "ip"
        ):
            return
    raise AccessRefused(Code.NO_AUTH)


def in_network(granted: str, known: str) -> bool:
    """Whether an address or a network in a list covers a client's address."""
    network, address = ip_network(granted), ip_network(known)
    if network is None or address is None:
        return False
    shift = 32 - network[1]
    return network[0] >> shift == address[0] >> shift


def hide_passwords(acl: Acl) -> Acl:
    """The list for clients that may read it but not change it."""
    return tuple(
        ZnodeAclEntry(entry.perms, AclId("digest", re.sub(":.*", ":x", entry.id.id)))
        if entry.id.scheme == "digest"
        else entry
        for entry in acl
    )


def authenticate(scheme: str | None, auth: bytes | None, address: str) -> AclId:
    """The id that the credentials prove. Errors: AccessRefused (AUTH_FAILED)."""
    if scheme == "digest" and auth is not None:
        id_ = digest_id(auth)
        if len(id_) <= MAX_ID_CHARACTERS:
            return AclId("digest", id_)
    if scheme == "ip":
        return AclId("ip", address)
    raise AccessRefused(Code.AUTH_FAILED)


def digest_id(auth: bytes) -> str:
    """`user:hash` of `user:password`. Source: DigestAuthenticationProvider.generateDigest."""
    from base64 import b64encode
    from hashlib import sha1

    user = auth.split(b":", 1)[0]
    return f"{user.decode(errors='replace')}:{b64encode(sha1(auth).digest()).decode()}"


def user_name(id_: AclId) -> str:
    """The part of an id that may be shown."""
    return id_.id.split(":")[0] if id_.scheme == "digest" else id_.id


def ip_network(text: str) -> tuple[int, int] | None:
    """An IPv4 address as a number, and the number of its significant bits; None if it is invalid."""
    # Zeros in front may make an address of any length, which must not stay in the cache.
    return _parsed_network(text) if len(text) <= 64 else _parsed_network.__wrapped__(text)


@lru_cache(4 * MAX_ACL_ENTRIES)
def _parsed_network(text: str) -> tuple[int, int] | None:
    address, slash, bits = text.partition("/")
    parts = [_number(part) for part in address.split(".", 4)]
    if len(parts) != 4:
        return None
    number = 0
    for part in parts:
        if part is None or part > 255:
            return None
        number = number << 8 | part
    significant = _number(bits) if slash else 32
    if significant is None or significant > 32:
        return None
    return number, significant


def _number(text: str) -> int | None:
    """A number below 1000, as Java's Integer.parseInt reads it; None for any other text."""
    found = re.fullmatch(r"\+?0*([0-9]{1,3})", text)
    return None if found is None else int(found[1])


def valid_digest(id_: str | None) -> bool:
    """Check the form `user:hash`; the hash is not checked."""
    parts = (id_ or "").split(":")
    while parts and not parts[-1]:  # Java's split drops them
        parts.pop()
    return len(parts) == 2


def valid_ip(id_: str | None) -> bool:
    """An address or a network."""
    return id_ is not None and ip_network(id_) is not None


VALID = {"digest": valid_digest, "ip": valid_ip}
#: Schemes whose ids identify a client, not only its address; `auth` stands for these.
AUTHENTICATED = frozenset({"digest"})
