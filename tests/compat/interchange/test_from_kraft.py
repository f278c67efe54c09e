"""A directory that Apache Kafka wrote as a KRaft node, 4.3.0 or 3.9.2, is copied, imported and served by kwire."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kwire.api import ApiKey

from ...support.broker_process import REPOSITORY, KwireBroker
from ...support.kafka import KAFKA_3, Kafka43Broker, KafkaProcess
from .asking import ask, call, committed_offsets, describe_consumer_group
from .content import SETTINGS, Content, create_topics
from .moving import Home, complaints
from .stays import Stay
from .travellers import StandingMember, read_some_and_commit

pytestmark = [pytest.mark.e2e, pytest.mark.jvm, pytest.mark.slow]

KAFKA, KAFKA_39, KWIRE = "Apache Kafka 4.3.0", "Apache Kafka 3.9.2", "kwire"
AUTHORIZER = {
    "super.users": "User:ANONYMOUS",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
#: A snapshot is written while the test runs, so that both it and a segment are read.
ONLY_KAFKA = {
    "metadata.log.max.record.bytes.between.snapshots": "6000",
    "log.initial.task.delay.ms": "500",
}
ONLY_4 = {
    # 4.3.0 allows no smaller segments; those of other topics have a config that is not public.
    "offsets.topic.segment.bytes": "1048576",
    "transaction.state.log.segment.bytes": "1048576",
}
BROKER, CLIENT_METRICS, GROUP = 4, 16, 32
#: Type and name of the resource, key, value.
Configs = Sequence[tuple[int, str, str, str]]
CONFIGS: Configs = (
    (BROKER, "", "log.cleaner.threads", "2"),
    (BROKER, "0", "max.connections", "9999"),
    (CLIENT_METRICS, "all of them", "interval.ms", "60000"),
    (GROUP, "stands by KIP-848", "consumer.session.timeout.ms", "60000"),
)


class Kraft39Broker(Kafka43Broker):
    """Apache Kafka 3.9.2, broker and controller in one KRaft process."""

    version = KAFKA_3


class KraftHome(Home):
    """A directory of a KRaft node, and from its first start under kwire on a copy of it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.room = directory / "original"
        self.room.mkdir()

    @property
    def data(self) -> Path:
        """log.dirs."""
        return self.room / "data"

    def start(self, kind: str, **config: str) -> None:
        """Start one of the brokers; settings have their own names here."""
        settings = SETTINGS | AUTHORIZER | config
        if kind == KAFKA:
            settings |= ONLY_KAFKA | ONLY_4
            self.broker = Kafka43Broker(self.room, config=settings, port=self.port)
        elif kind == KAFKA_39:
            self.broker = Kraft39Broker(self.room, config=settings | ONLY_KAFKA, port=self.port)
        else:
            self.broker = KwireBroker(self.room, config=settings, port=self.port)
        self.broker.log_path.unlink(missing_ok=True)
        self.broker.start()

    def leave(self, *, killed: bool) -> str:
        """Stop the broker; returns its log."""
        broker, self.broker = self.broker, None
        assert broker is not None
        if killed:
            broker.kill()
        else:
            assert KafkaProcess.stop(broker) in (0, 143)  # type: ignore[arg-type]
        return broker.log_path.read_text(errors="replace")

    def copy(self) -> None:
        """Continue with a copy of the directory; the original is no longer touched."""
        copy = self.directory / "copy"
        copy.mkdir()
        shutil.copytree(self.data, copy / "data")
        self.room = copy

    def close(self) -> None:
        """End everything."""
        if self.broker is not None:
            self.leave(killed=True)


def import_from(data: Path, *options: str, code: int = 0) -> str:
    """Run `kwire coordination import --from-kraft`; returns its output."""
    command = [sys.executable, "-m", "server", "coordination", "import", "--from-kraft", str(data)]
    done = subprocess.run(
        [*command, *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr


def configure(address: str, configs: Configs = CONFIGS) -> None:
    """ACLs, SCRAM users, quotas, and configs of a broker, of all brokers, of clients' metrics and of a group."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    acls = [
        AclBinding(
            ResourceType.TOPIC,
            name,
            pattern,
            principal,
            "*",
            operation,
            permission,
        )
        for name, pattern, principal, operation, permission in (
            ("codecs", ResourcePatternType.LITERAL, "User:alice", AclOperation.READ, AclPermissionType.ALLOW),
            ("codecs", ResourcePatternType.LITERAL, "User:bob", AclOperation.WRITE, AclPermissionType.DENY),
            ("made", ResourcePatternType.PREFIXED, "User:alice", AclOperation.ALL, AclPermissionType.ALLOW),
        )
    ]  # fmt: skip
    for done in admin.create_acls(acls).values():
        done.result(20)
    for name, mechanism in (
        ("alice", ScramMechanism.SCRAM_SHA_256),
        ("alice", ScramMechanism.SCRAM_SHA_512),
        ("bob smith", ScramMechanism.SCRAM_SHA_512),
    ):
        info = ScramCredentialInfo(mechanism, 4096)
        user = UserScramCredentialUpsertion(name, info, b"secret", b"salt")
        for done in admin.alter_user_scram_credentials([user]).values():
            done.result(20)
    entries = [
        quota({"user": "alice"}, "producer_byte_rate", 1_000_000.0),
        quota({"user": "alice", "client-id": "app"}, "request_percentage", 12.5),
        quota({"user": None}, "consumer_byte_rate", 5e9),
        quota({"client-id": "a/b"}, "controller_mutation_rate", 3.0),
        quota({"ip": "127.0.0.1"}, "connection_creation_rate", 1000.0),
    ]
    answer = call(
        address, ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": entries, "validate_only": False}
    )
    assert [row["error_code"] for row in answer["entries"]] == [0] * len(entries), answer
    configure_all(address, configs)


def configure_all(address: str, configs: Configs) -> None:
    """Set configs."""
    for kind, name, key, value in configs:
        config = {"name": key, "config_operation": 0, "value": value}
        resource = {"resource_type": kind, "resource_name": name, "configs": [config]}
        asked = {"resources": [resource], "validate_only": False}
        answer = call(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, asked)
        assert answer["responses"][0]["error_code"] == 0, answer


def quota(entity: dict[str, str | None], key: str, value: float) -> dict[str, Any]:
    """An entry of AlterClientQuotas."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [{"key": key, "value": value, "remove": False}],
    }


def configured(address: str, configs: Configs = CONFIGS) -> dict[str, Any]:
    """The configs that `configure` has set, as the broker describes them."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    acls = sorted(map(str, admin.describe_acls(every).result(20)))
    scram = call(address, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None})["results"]
    for user in scram:
        user["credential_infos"].sort(key=lambda row: row["mechanism"])
    asked = {"components": [], "strict": False}
    quotas = call(address, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, asked)["entries"]
    for row in quotas:
        row["entity"].sort(key=lambda part: part["entity_type"])
    keys = [
        {"resource_type": kind, "resource_name": name or "0", "configuration_keys": [key]}
        for kind, name, key, _ in configs
    ]
    asked = {"resources": keys, "include_synonyms": False, "include_documentation": False}
    found = ask(address, ApiKey.DESCRIBE_CONFIGS, 4, asked)["results"]
    return {
        "acls": acls,
        "scram": sorted(scram, key=lambda row: row["user"]),
        "quotas": sorted(quotas, key=str),
        "configs": [each["value"] for row in found for each in row["configs"]],
    }


def seen_files(data: Path) -> dict[Path, tuple[int, int]]:
    """Size and time of change of every file."""
    found = ((path, path.stat()) for path in data.rglob("*") if path.is_file())
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in found}


@pytest.fixture
def stay(tmp_path: Path) -> Iterator[Stay]:
    home = KraftHome(tmp_path)
    stay = Stay(home, Content(seed=1))
    yield stay
    stay.close()
    home.close()
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.fixture
def members() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("killed", [False, True], ids=["stopped", "killed"])
def test_copy_of_a_4_3_directory_is_served_whole(
    stay: Stay, killed: bool, members: ExitStack
) -> None:
    """Records, offsets, epochs, ids, transactions, groups, ACLs, users and quotas; the original stays unchanged.

    Members of both kinds of groups stay connected and notice nothing: epochs and assignments are the same, also when
    Apache Kafka 4.3.0 continues with the copy afterwards.
    """
    home = stay.home
    assert isinstance(home, KraftHome)
    home.start(KAFKA)
    create_topics(home.address, "internal.segment.bytes")
    configure(home.address)
    stay.work()
    read_some_and_commit(home.address, "of KIP-848", 10, **{"group.protocol": "consumer"})
    offsets = committed_offsets(home.address, "of KIP-848")
    member = StandingMember(home.address, "stands by KIP-848", protocol="consumer")
    members.callback(member.close)
    member.read_up_to(len(stay.content.plain["codecs", 0]))
    described = describe_consumer_group(home.address, "stands by KIP-848")
    assert described["group_state"] == "Stable"
    before = configured(home.address)
    assert before["configs"] == [value for _, _, _, value in CONFIGS]
    original = home.data
    if not killed:
        assert "in use" in import_from(original, "--data-dir", str(home.directory / "no"), code=1)
    stay.leave(killed=killed)
    files = seen_files(original)
    go_on_with_a_copy(home)
    stay.arrive()
    assert configured(home.address) == before
    assert offsets and committed_offsets(home.address, "of KIP-848") == offsets
    assert describe_consumer_group(home.address, "stands by KIP-848") == described
    stay.content.write(home.address, old_formats=False)
    member.read_up_to(len(stay.content.plain["codecs", 0]))
    assert member.assignments == 1
    again = describe_consumer_group(home.address, "stands by KIP-848")
    stay.close()
    check_log(stay.leave(killed=False))
    assert seen_files(original) == files
    home.start(KAFKA)
    assert committed_offsets(home.address, "of KIP-848") == offsets
    assert describe_consumer_group(home.address, "stands by KIP-848") == again == described
    assert member.assignments == 1
    members.close()
    stay.leave(killed=False)


def test_copy_of_a_3_9_directory_is_served_whole(stay: Stay) -> None:
    """As above, but for groups of KIP-848, which 3.9.2 supports only if they are enabled."""
    home = stay.home
    assert isinstance(home, KraftHome)
    home.start(KAFKA_39)
    create_topics(home.address)
    configs = [row for row in CONFIGS if row[0] != GROUP]
    configure(home.address, configs)
    stay.work()
    before = configured(home.address, configs)
    stay.leave(killed=False)
    go_on_with_a_copy(home)
    stay.arrive()
    assert configured(home.address, configs) == before
    stay.close()
    check_log(stay.leave(killed=False))


def go_on_with_a_copy(home: KraftHome) -> None:
    """Copy the directory, import its metadata, and start kwire."""
    home.copy()
    assert "--in-place" in import_from(home.data, "--data-dir", str(home.data), code=1)
    said = import_from(home.data, "--in-place")
    assert "3 ACLs, 3 SCRAM credentials, 5 entities with quotas" in said
    assert "(snapshot of " in said
    assert "left out: finalized features, as kwire has its own: " in said
    home.start(KWIRE)


def check_log(said: str) -> None:
    """Nothing unexpected is in kwire's log."""
    expected = ("super.users", "client metrics subscription")
    lines = complaints(KWIRE, said)
    assert [line for line in lines if not any(each in line for each in expected)] == []
