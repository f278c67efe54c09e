"""Records the table of Apache Kafka 3.9.2. usage: python -m tests.authorization > tests/authorization/kafka-3.9.2.json

The broker has ZooKeeper, `kafka.security.authorizer.AclAuthorizer` and SASL PLAIN. The user alice
has an ACL that allows everything, and for each denial one that denies it for all names.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kwire.api import ApiKey
from server.handlers.authorization import ResourceType
from tests.support.broker_process import free_port
from tests.support.kafka import Kafka39Broker
from tests.support.wire_client import WireClient

from .asking import Asking, ask_all
from .cases import Permission

ALLOW, DENY, ALL_OPERATIONS = 3, 2, 2
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def acl(kind: ResourceType, operation: int, permission: int) -> dict[str, object]:
    return {
        "resource_type": int(kind),
        "resource_name": "kafka-cluster" if kind is ResourceType.CLUSTER else "*",
        "principal": "User:alice",
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def matching(row: dict[str, object]) -> dict[str, object]:
    renamed = {
        "resource_type": "resource_type_filter",
        "resource_name": "resource_name_filter",
        "principal": "principal_filter",
        "host": "host_filter",
    }
    return {renamed.get(name, name): value for name, value in row.items()}


def main() -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        broker = Kafka39Broker(Path(folder))
        broker.config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},SASL_PLAINTEXT://127.0.0.1:{port}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{LOGIN} user_alice="secret";',
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.ms": "-1",  # the records have old timestamps
            "group.initial.rebalance.delay.ms": "0",
        }
        broker.start()
        try:
            admin = WireClient("127.0.0.1", broker.port)

            def change(rows: list[dict[str, object]]) -> None:
                answer = admin.call(ApiKey.CREATE_ACLS, 3, {"creations": rows})
                assert answer and not any(row["error_code"] for row in answer["results"]), answer

            in_force: list[dict[str, object]] = []

            @contextmanager
            def deny(case: str, denied: tuple[Permission, ...]) -> Iterator[None]:
                # The administrator is not concerned, so that ACLs may stay until others are due.
                rows = [acl(kind, int(operation), DENY) for kind, operation in denied]
                if rows != in_force:
                    filters = [matching(row) for row in in_force]
                    admin.call(ApiKey.DELETE_ACLS, 3, {"filters": filters})
                    change(rows)
                    in_force[:] = rows
                yield

            def connect() -> WireClient:
                client = WireClient("127.0.0.1", port)
                client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                answer = client.call(
                    ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"}
                )
                assert answer and not answer["error_code"], answer
                return client

            change([acl(kind, ALL_OPERATIONS, ALLOW) for kind in ResourceType])
            with closing(Asking(admin, connect, deny)) as asking:
                table = ask_all(asking)
        finally:
            broker.stop()
    rows = (
        f"{json.dumps(name)}: {{"
        + ",".join(f"\n  {json.dumps(d)}: {json.dumps(e)}" for d, e in row.items())
        + "}"
        for name, row in table.items()
    )
    sys.stdout.write("{\n" + ",\n".join(rows) + "\n}\n")


main()
