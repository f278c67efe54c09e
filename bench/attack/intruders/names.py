"""Names that imitate other users' names."""

from __future__ import annotations

from kwire.api import ApiKey
from server.security.sasl.clients import PlainClient, ScramClient

from ..doors import SECRETS, TOPIC, Door, SecuredKwire, add_users, allow
from ..wire import errors_in
from .attempt import ALICE, MALLORY, Tried, refused

NAMES = (
    *(
        "alice/clients/app",
        "alice/",
        "/alice",
        "../alice",
        "..",
        ".",
        "%2F",
        "alice%2Fclients",
        "%61lice",
    ),
    *(
        "*",
        "alice'",
        'alice"',
        "alice\n",
        "alice\r\n",
        "\nalice",
        "alice ",
        " alice",
        "alice\t",
        "ALICE",
        "Alice",
    ),
    *("alice,bob", "alice=2C", "=2C", "alice=admin", "User:alice", "User:*", "alice:alice"),
    *(
        "<default>",
        "%3Cdefault%3E",
        "clients",
        "users",
        "changes",
        "acl",
        "\u0430lice",
        "al\u200dice",
        "\uff41lice",
    ),
    *(
        "alic\u00e9",
        "alice\u0301",
        "\u202ealice",
        "$(id)",
        "'; DROP TABLE node; --",
        "${jndi:ldap://x}",
        "a" * 5000,
    ),
    *("alice\0", "al\0ice", "\0alice"),
)


def names_close_to_others(broker: SecuredKwire) -> Tried:
    """Users, groups, topics and patterns whose names may be mistaken for others' in an ACL or in the store."""
    for kind in (user_names, names_in_acls, topic_names, names_in_quotas):
        yield from kind(broker)


def user_names(broker: SecuredKwire) -> Tried:
    """Users whose names imitate others, or would be paths of their entries in the store."""
    admin = broker.admin()
    expected = {ALICE, MALLORY}
    for name in NAMES:
        (code,) = add_users(admin, {name: "own-password-Zq90"})
        if code == 0:
            expected.add(name)
        for mechanism in ("SCRAM-SHA-256", "PLAIN"):
            with Door(broker.ports.sasl) as door:

                def steal(door: Door = door, mechanism: str = mechanism, name: str = name) -> bool:
                    kind = ScramClient if mechanism != "PLAIN" else PlainClient
                    words = (mechanism, name) if mechanism != "PLAIN" else (name,)
                    return (
                        not door.log_in(kind(*words, "own-password-Zq90"), mechanism)
                        and door.may_read()
                    )

                yield f"user {name[:40]!r} with {mechanism}", not refused(steal)
        with Door(broker.ports.sasl) as door:
            yield (
                f"alice's credential with {name[:40]!r}",
                not refused(lambda door=door, name=name: door.scram(name, SECRETS[ALICE]) == 0),
            )
    # Only these users exist, so no name has created or changed another entry.
    with Door(broker.ports.sasl) as door:
        yield "alice's own password after that", door.scram(ALICE, SECRETS[ALICE]) != 0
    answer = admin.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
    found = {row["user"] for row in answer["results"]}
    yield f"entries of others in the store: {sorted(found ^ expected)}", found != expected


def names_in_acls(broker: SecuredKwire) -> Tried:
    """ACLs for mallory whose names only look like alice's topic."""
    admin = broker.admin()
    for pattern, name in (
        (3, f"{TOPIC}*"),
        (3, "treas?re"),
        (3, ".*"),
        (4, "treasury"),
        (4, f"{TOPIC}*"),
        (3, "*\0"),
    ):
        code = allow(admin, "User:mallory", 2, name, pattern)
        yield f"ACL on {name!r} ({code})", mallory_may_read(broker)
    for principal in (
        "User:alice,User:mallory",
        "User:mal*",
        "Group:mallory",
        "user:mallory",
        "mallory",
        ":mallory",
    ):
        code = allow(admin, principal, 2, TOPIC)
        yield f"ACL for {principal!r} ({code})", mallory_may_read(broker)


def mallory_may_read(broker: SecuredKwire) -> bool:
    with Door(broker.ports.sasl) as door:
        assert door.plain(MALLORY, SECRETS[MALLORY]) == 0
        return bool(door.may_read())


def topic_names(broker: SecuredKwire) -> Tried:
    """Topics whose names would be paths of other nodes, from a super user: none may be created outside its place."""
    admin = broker.admin()
    for topic in (
        "../users/mallory",
        "a/b",
        "..",
        ".",
        "a\0b",
        "a\nb",
        "%2e%2e",
        "x" * 250,
        "/brokers",
        "",
    ):
        rows = [
            {
                "name": topic,
                "num_partitions": 1,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ]
        made = admin.call(ApiKey.CREATE_TOPICS, 5, topics=rows, timeout_ms=10_000)["topics"][0][
            "error_code"
        ]
        yield f"topic {topic[:20]!r}", made == 0


def names_in_quotas(broker: SecuredKwire) -> Tried:
    """The same for quotas."""
    admin = broker.admin()
    for entity in (
        "..",
        ".",
        "a/../../users/alice",
        "mallory/clients/x",
        "<default>/clients",
        "\0",
    ):
        rows = [
            {
                "entity": [{"entity_type": kind, "entity_name": entity}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
            }
            for kind in ("user", "client-id", "ip")
        ]
        answer = admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=rows, validate_only=False)
        quotas = (
            admin.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, components=[], strict=False)["entries"]
            or []
        )
        odd = [q for q in quotas if any(e["entity_name"] != entity for e in q["entity"])]
        yield f"quota of {entity!r} {sorted(errors_in(answer))}", bool(odd)
        undo = [
            {**row, "ops": [{"key": "producer_byte_rate", "value": 0.0, "remove": True}]}
            for row in rows
        ]
        admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=undo, validate_only=False)
