"""The cost of security for a broker: an authorizer, SASL_SSL with SCRAM, and quotas that never throttle, all together.

Compares kwire with Apache Kafka 3.9.2, each once with all of these (`on`) and once without any (`off`); the four processes take
turns. Apache Kafka's own tools produce and consume. On the secured brokers, the clients' user has ACLs for a prefix of topics
and of groups, and quotas for bytes and for requests.

    python -m bench.secured --rounds 3 --gb 0.5          CPU per GB
    python -m bench.secured --logins 500 --idle 1000     CPU per login, memory of idle connections
"""

from __future__ import annotations

import argparse
import os
import platform
import ssl
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median

from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from kwire.api import ApiKey
from kwire.testing.certificates import Authority
from server.client.login import log_in
from server.client.wire import Wire, open_socket
from server.security.sasl.scram import salted_password
from tests.support.broker_process import BrokerProcess, cpu_seconds, free_port, resident_bytes
from tests.support.kafka import Kafka39Broker
from tests.support.wire_client import WireClient

from .broker import BATCHES, BROKER_JVM, PARTITIONS, RECORD_BYTES, note, spread
from .tls import Client, TwoListeners

USER, PASSWORD, MECHANISM, ITERATIONS = "alice", "a-password", "SCRAM-SHA-256", 4096
PREFIX = "bench-"
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"
WARM_UP_GB = 1.0
#: Bytes per second, and percent of the loop or of the threads.
NEVER_REACHED = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}

TOPIC, GROUP, LITERAL, PREFIXED, ALLOW = 2, 3, 3, 4, 3
READ, WRITE, DESCRIBE = 3, 4, 8


class SecuredClient(Client):
    """Apache Kafka's tools, logged in."""

    def login(self) -> dict[str, str]:
        """User and password."""
        return {
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{MODULE} username="{USER}" password="{PASSWORD}";',
        }


class Target:
    """One of the four brokers, with its figures by (work, batch size)."""

    def __init__(self, kind: str, *, secured: bool, folder: Path) -> None:
        self.name = f"{kind}, {'on' if secured else 'off'}"
        self.folder = folder
        self.secured = secured
        self.cpu: dict[tuple[str, int], list[float]] = defaultdict(list)
        self.ports = {"PLAINTEXT": free_port()}
        config = {}
        if secured:
            self.ports["SASL_SSL"] = free_port()
            config = {
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS",  # prepares the measurement, on the other listener
                "sasl.enabled.mechanisms": MECHANISM,
                f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{MODULE};",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / "broker.pem"),
            }
        config["listeners"] = ",".join(f"{n}://127.0.0.1:{p}" for n, p in self.ports.items())
        directory, port = folder / self.name.replace(", ", "-"), self.ports["PLAINTEXT"]
        self.broker: BrokerProcess
        if kind == "kwire":
            self.broker = TwoListeners(directory, config=config, port=port)
        else:
            self.broker = Kafka39Broker(directory, config=config, port=port, jvm=BROKER_JVM)

    def start(self) -> None:
        """Start the broker; create the user, its ACLs and its quotas."""
        self.broker.start()
        if not self.secured:
            return
        client = WireClient("127.0.0.1", self.ports["PLAINTEXT"], 30.0)
        salt = os.urandom(16)
        user = {
            "name": USER,
            "mechanism": 1,
            "iterations": ITERATIONS,
            "salt": salt,
            "salted_password": salted_password(MECHANISM, PASSWORD, salt, ITERATIONS),
        }
        request = {"deletions": [], "upsertions": [user]}
        answer = client.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, request)
        assert answer is not None and answer["results"][0]["error_code"] == 0, answer
        rights = [(TOPIC, PREFIX, READ), (TOPIC, PREFIX, WRITE), (TOPIC, PREFIX, DESCRIBE)]
        creations = [
            {
                "resource_type": kind,
                "resource_name": name,
                "resource_pattern_type": LITERAL if name == "*" else PREFIXED,
                "principal": f"User:{USER}",
                "host": "*",
                "operation": operation,
                "permission_type": ALLOW,
            }
            for kind, name, operation in (*rights, (GROUP, "*", READ))
        ]
        answer = client.call(ApiKey.CREATE_ACLS, 1, {"creations": creations})
        assert answer is not None, answer
        assert all(row["error_code"] == 0 for row in answer["results"]), answer
        entry = {
            "entity": [{"entity_type": "user", "entity_name": USER}],
            "ops": [{"key": k, "value": v, "remove": False} for k, v in NEVER_REACHED.items()],
        }
        request = {"entries": [entry], "validate_only": False}
        answer = client.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, request)
        assert answer is not None and answer["entries"][0]["error_code"] == 0, answer
        client.close()
        time.sleep(2.0)  # Apache Kafka applies all of it after ZooKeeper's notifications

    def client(self, batch: int) -> Client:
        """A client of the measured listener."""
        kind, protocol = (SecuredClient, "SASL_SSL") if self.secured else (Client, "PLAINTEXT")
        client = kind(self.broker, protocol, self.ports[protocol], self.folder)
        client.batch = batch
        return client

    def measure(self, batch: int, gigabytes: float, *, keep: bool = True) -> None:
        """Produce and consume this much with a separate topic, then delete the topic."""
        records = int(gigabytes * 1e9 / RECORD_BYTES)
        topic = f"{PREFIX}{time.monotonic_ns()}"
        client = self.client(batch)
        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
        for work in ("produce", "consume"):
            before = cpu_seconds(self.broker.pid)
            getattr(client, work)(topic, records)
            used = (cpu_seconds(self.broker.pid) - before) / gigabytes
            note(f"{self.name}: {batch} {work} {used:.2f} CPU s per GB")
            if keep:
                self.cpu[work, batch].append(used)
        admin.delete_topics([topic])
        admin.close()

    def log_in(self, context: ssl.SSLContext) -> Wire:
        """A connection with a full TLS handshake, on which the user has logged in."""
        sock = open_socket(("127.0.0.1", self.ports["SASL_SSL"]), 30.0)
        wire = Wire(context.wrap_socket(sock, server_hostname="localhost"), "client")
        login = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": USER,
            "sasl_plain_password": PASSWORD,
        }
        log_in(wire, "localhost", login)
        return wire


def throughput(targets: list[Target], rounds: int, gigabytes: float) -> None:
    """CPU for each GB, as a table."""
    for target in targets:
        target.measure(BATCHES[-1], WARM_UP_GB, keep=False)
        target.measure(BATCHES[0], WARM_UP_GB / 4, keep=False)
    for _ in range(rounds):
        for batch in BATCHES:
            for target in targets:
                target.measure(batch, gigabytes)
    print(f"{rounds} rounds of {gigabytes} GB, records of 1 KB, {PARTITIONS} partitions, acks=all,")
    print(f"after {WARM_UP_GB * 1.25} GB that are not counted; CPU s per GB\n")
    print("| work | batch | broker | off | on | difference | on, beside Apache Kafka |")
    print("|---|---|---|---|---|---|---|")
    for work in ("produce", "consume"):
        for batch in BATCHES:
            figures = {target.name: target.cpu[work, batch] for target in targets}
            for kind in ("kwire", "Apache Kafka 3.9.2"):
                off, on = figures[f"{kind}, off"], figures[f"{kind}, on"]
                ratio = median(on) / median(figures["Apache Kafka 3.9.2, on"])
                print(
                    f"| {work} | {batch // 1024} KiB | {kind} | {spread(off)} | {spread(on)} |"
                    f" {median(on) - median(off):.2f} | {ratio:.2f} |"
                )


def logins(targets: list[Target], context: ssl.SSLContext, count: int, rounds: int) -> None:
    """CPU for each login, after the same number of uncounted ones."""
    figures: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for target in targets:
            before = cpu_seconds(target.broker.pid)
            for _ in range(count):
                target.log_in(context).close()
            used = cpu_seconds(target.broker.pid) - before
            note(f"{target.name}: {used / count * 1000:.2f} ms per login")
            if number:
                figures[target.name].append(used / count * 1000)
    print(f"{rounds} rounds of {count} logins, {context.maximum_version.name}, {MECHANISM}\n")
    print("| broker | CPU ms per login | logins per second of CPU |")
    print("|---|---|---|")
    for name, used_ms in figures.items():
        print(f"| {name} | {spread(used_ms)} | {1000 / median(used_ms):.0f} |")


def idle(targets: list[Target], context: ssl.SSLContext, count: int) -> None:
    """Memory of idle connections."""
    print("\n| broker | connections | MB before | MB with them | KB for each |")
    print("|---|---|---|---|---|")
    for target in targets:
        before = resident_bytes(target.broker.pid)
        clients = [target.log_in(context) for _ in range(count)]
        after = resident_bytes(target.broker.pid)
        print(
            f"| {target.name} | {count} | {before / 1e6:.1f} | {after / 1e6:.1f} |"
            f" {(after - before) / count / 1e3:.1f} |"
        )
        for client in clients:
            client.close()


def main() -> None:
    """Start the brokers, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.secured")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--gb", type=float, default=0.5, help="GB produced and consumed in each run"
    )
    parser.add_argument(
        "--logins", type=int, default=0, help="measure logins: how many in each round"
    )
    parser.add_argument(
        "--idle", type=int, default=0, help="measure the memory of this many idle connections"
    )
    options = parser.parse_args()
    only_logins = options.logins or options.idle
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        authority = Authority()
        authority.write(folder / "ca.pem")
        authority.issue("CN=broker").write(folder / "broker.pem")
        targets = [
            Target(kind, secured=secured, folder=folder)
            for kind in ("kwire", "Apache Kafka 3.9.2")
            for secured in ((True,) if only_logins else (False, True))
        ]
        started = []
        try:
            for target in targets:
                started.append(target)
                target.start()
            print(f"Linux {platform.release()}, {os.cpu_count()} cores,", end=" ")
            print(f"Python {platform.python_version()}, {ssl.OPENSSL_VERSION};")
            context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
            if options.idle:
                idle(targets, context, options.idle)
            if options.logins:
                logins(targets, context, options.logins, options.rounds)
            if not only_logins:
                throughput(targets, options.rounds, options.gb)
        finally:
            for target in started:
                target.broker.stop()


if __name__ == "__main__":
    main()
