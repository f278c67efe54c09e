"""Users who log in with SCRAM, all with one password."""

from __future__ import annotations

from kwire.api import ApiKey
from server.security.sasl.clients import ScramClient
from server.security.sasl.scram import salted_password
from tests.support.wire_client import WireClient

MECHANISM, PASSWORD, SALT = "SCRAM-SHA-256", "secret", b"salt"


def add_users(client: WireClient, *users: str) -> None:
    """Users who log in with the same password."""
    salted = salted_password(MECHANISM, PASSWORD, SALT, 4096)
    credential = {"mechanism": 1, "iterations": 4096, "salt": SALT, "salted_password": salted}
    rows = [{"name": user, **credential} for user in users]
    answer = client.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [], "upsertions": rows}
    )
    assert answer is not None
    assert {row["error_code"] for row in answer["results"]} == {0}, answer


def log_in(client: WireClient, user: str) -> None:
    client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
    login = ScramClient(MECHANISM, user, PASSWORD)
    message: bytes | None = login.start()
    while message is not None:
        answer = client.call(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})
        assert answer and not answer["error_code"], answer
        message = login.evaluate(answer["auth_bytes"])
