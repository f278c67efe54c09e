"""Records the table of Apache Kafka. usage: python -m tests.authorization 3.9.2 > tests/authorization/kafka-3.9.2.json

3.9.2 has ZooKeeper and `kafka.security.authorizer.AclAuthorizer`; 4.3.0 is broker and controller in
one, with StandardAuthorizer. The user alice, who logs in with SASL PLAIN, has an ACL that allows everything, and for each denial one that denies it for all names.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from kwire.api import ApiKey
from tests.support.broker_process import free_port
from tests.support.kafka import Kafka43Broker, KafkaProcess, kafka_broker
from tests.support.wire_client import WireClient

from .acls import ALICES_ACLS, ALL_OPERATIONS, ALLOW, ALLOWING, DENY, RESOURCES, acl, matching
from .asking import Asking, ask_all
from .cases import Permission

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def settings_of(broker: KafkaProcess) -> dict[str, str]:
    """The settings in which the releases differ."""
    plain = f"PLAINTEXT://127.0.0.1:{broker.port}"
    if not isinstance(broker, Kafka43Broker):
        return {"listeners": plain, "authorizer.class.name": ACL_AUTHORIZER}
    return {
        "listeners": f"{plain},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        ),
        "authorizer.class.name": STANDARD_AUTHORIZER,
    }


def until_known(admin: WireClient, bindings: int) -> None:
    """Wait until the broker applies the ACLs: with KRaft, CreateAcls may be answered earlier."""
    for _ in range(1000):
        answer = admin.call(ApiKey.DESCRIBE_ACLS, 3, ALICES_ACLS)
        assert answer is not None
        if sum(len(row["acls"]) for row in answer["resources"]) == bindings:
            time.sleep(0.1)  # for the controller, to which the broker forwards requests
            return
        time.sleep(0.01)
    raise AssertionError(answer)


def main(kafka_version: str) -> None:
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        broker = kafka_broker(kafka_version, Path(folder))
        own = settings_of(broker)
        broker.config = {
            **own,
            "listeners": f"{own['listeners']},SASL_PLAINTEXT://127.0.0.1:{port}",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{LOGIN} user_alice="secret" user_bob="secret";'
            ),
            "delegation.token.secret.key": "secret",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "log.retention.ms": "-1",  # the records have old timestamps
            "share.coordinator.state.topic.num.partitions": "1",
            "group.share.max.session.timeout.ms": "3600000",  # the member sends no more heartbeats
            "group.share.session.timeout.ms": "3600000",
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
                    until_known(admin, ALLOWING)
                    change(rows)
                    in_force[:] = rows
                    until_known(admin, ALLOWING + len(rows))
                yield

            def connect(user: str) -> WireClient:
                client = WireClient("127.0.0.1", port)
                client.call(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
                answer = client.call(
                    ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": f"\0{user}\0secret".encode()}
                )
                assert answer and not answer["error_code"], answer
                return client

            change([acl(kind, ALL_OPERATIONS, ALLOW) for kind in RESOURCES])
            until_known(admin, ALLOWING)
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


main(sys.argv[1])
