"""The image in place of apache/kafka and confluentinc/cp-kafka: the steps of Testcontainers' modules, in a directory.

The scripts of the image and of the modules are used with other paths and ports, so that no container engine is needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from confluent_kafka.admin import AdminClient

from server.cli.serve import DEFAULT_DATA_DIR
from server.config import BrokerConfig
from server.config.properties import parse_properties
from tests.testing.clients import producer, send

from ..support.broker_process import free_port
from .modules import MODULES, Module

ROOT = Path(__file__).resolve().parents[2]
IMAGE = ROOT / "compat" / "docker" / "image"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
#: Where the image and the modules have files.
FOLDERS = ("/etc/kafka", "/etc/confluent", "/var/lib", "/mnt/shared", "/usr/sbin", "/tmp/", "/tc-start", "/testcontainers_start")  # fmt: skip
PORTS = ("9092", "9093", "9094", "2181")


def loaded() -> ModuleType:
    """image.py, which is not a module of a package."""
    spec = importlib.util.spec_from_file_location("kwire_image", IMAGE / "image.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


image = loaded()


# -- variables to settings


@pytest.mark.parametrize(
    ("variable", "setting"),
    [
        ("KAFKA_ADVERTISED_LISTENERS", "advertised.listeners"),
        ("KAFKA_LISTENER_NAME_SECURE_SCRAM___SHA___512_SASL_JAAS_CONFIG", "listener.name.secure.scram-sha-512.sasl.jaas.config"),
        ("KAFKA_KWIRE_A__B", "kwire.a_b"),
        ("KAFKA_A_KAFKA_B", "a.kafka.b"),
    ],
)  # fmt: skip
def test_variable_is_a_setting_by_the_rules_of_both_images(variable: str, setting: str) -> None:
    assert image.setting_of(variable) == setting


def test_variables_of_the_images_scripts_are_no_settings() -> None:
    found = image.settings_of({"KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_OPTS": "", "PATH": "/bin"})
    assert set(found) == {"listeners", "log.dirs", *image.ALONE}
    assert found["listeners"] == "PLAINTEXT://:9092"


def test_listeners_come_from_the_advertised_ones_on_all_interfaces() -> None:
    advertised = "PLAINTEXT://localhost:29092,OTHER://[::1]:9093"
    found = image.settings_of({"KAFKA_ADVERTISED_LISTENERS": advertised})
    assert found["listeners"] == "PLAINTEXT://0.0.0.0:29092,OTHER://0.0.0.0:9093"


def test_variables_win_over_a_mounted_file_and_kafkas_replication_holds_with_zookeeper() -> None:
    mounted = {"num.partitions": "2", "log.dir": "/data", "zookeeper.connect": "a:2181"}
    found = image.settings_of({"KAFKA_NUM_PARTITIONS": "3"}, mounted)
    assert found == {**mounted, "num.partitions": "3", "listeners": "PLAINTEXT://:9092"}


def test_settings_survive_the_properties_file() -> None:
    settings = {"a": "  b\\c\nd", "b": "", "sasl.jaas.config": 'x required u="p=1:2#3";'}
    assert parse_properties(image.as_properties(settings)) == settings


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"KAFKA_PROCESS_ROLES": "controller"}, "process.roles=controller: kwire has no KRaft controllers"),
        ({"KAFKA_NODE_ID": "2", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9094,2@b:9094"}, "a broker without ZooKeeper is alone"),
        ({"KAFKA_NODE_ID": "2", "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@controller:9094"}, "a broker without ZooKeeper is alone"),
    ],
)  # fmt: skip
def test_cluster_that_needs_kraft_is_refused(environment: dict[str, str], said: str) -> None:
    with pytest.raises(image.Impossible, match=said):
        image.settings_of(environment)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_lines_of_apache_kafka_are_those_of_the_modules_mode(module: Module) -> None:
    """The scripts of some modules name ZooKeeper only when they run."""
    with_zookeeper = "zookeeper-server-start" in module.script or (
        "KAFKA_ZOOKEEPER_CONNECT" in module.environment
    )
    settings = {"broker.id": "1"} | (
        {"zookeeper.connect": "localhost:2181"} if with_zookeeper else {}
    )
    lines = image.ready_lines(module.environment, settings)
    assert re.search(rf"^{module.log}$", lines, re.MULTILINE)
    assert len(lines.splitlines()) == (1 if with_zookeeper else 2)


def test_image_without_variables_of_kafka_prints_no_line_of_kafka() -> None:
    settings = image.settings_of({})
    assert image.ready_lines({"PATH": "/bin", "KAFKA_HEAP_OPTS": "-Xmx1g"}, settings) == ""


def test_image_has_the_packages_that_the_broker_asks_for() -> None:
    """It has no pip with which they could be added."""
    asked = {
        extra
        for file in (ROOT / "server").rglob("*.py")
        for extra in re.findall(r"pip install 'kwire\[(\w+)\]'", file.read_text())
    }
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", DOCKERFILE, re.MULTILINE)
    assert {"console", "telemetry"} <= asked
    assert asked - {"gssapi"} <= set(extras.split(","))


def test_data_is_in_the_volume_with_and_without_the_images_own_command() -> None:
    (folder,) = re.findall(r"^WORKDIR (/kwire)$", DOCKERFILE, re.MULTILINE)
    assert f"VOLUME {image.DATA_DIR}\n" in DOCKERFILE
    assert f"ln -s {image.DATA_DIR} {folder}/{DEFAULT_DATA_DIR} " in DOCKERFILE
    assert image.settings_of({})["log.dirs"] == image.DATA_DIR


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_settings_of_each_module_are_those_of_a_broker(module: Module) -> None:
    config = BrokerConfig(image.settings_of(module.environment))
    assert {endpoint.listener for endpoint in config.listeners} == {"PLAINTEXT", "BROKER"}
    assert config.inter_broker_listener.listener == "BROKER"


def test_tool_that_does_not_know_what_is_asked_says_what_it_can(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        sys, "argv", ["/opt/kwire/bin/kafka-configs.sh", "--alter", "--entity-type", "brokers"]
    )
    assert image.main() == 1
    assert "kwire configs" in capsys.readouterr().err


# -- the modules, each with a broker


class Container:
    """A directory with the files of the image, and processes that see them where a container has them."""

    def __init__(self, root: Path, ports: dict[str, int]) -> None:
        self.root = root
        self.ports = ports
        bin_folder = root / "bin"
        bin_folder.mkdir(parents=True)
        for name in ("etc/kafka/docker", "etc/confluent/docker"):
            (root / name).mkdir(parents=True)
            for file in IMAGE.iterdir():
                if file.suffix == "" and file.is_file():
                    self.put(f"/{name}/{file.name}", file.read_text())
        for name in ("kwire-image", "kafka-storage", "kafka-configs", "zookeeper-server-start"):
            script = self.put(f"/bin/{name}", (IMAGE / "image.py").read_text())
            # Not moved, wherever this checkout is.
            script.write_text(script.read_text().replace("/opt/kwire/bin/python3", sys.executable))
        kwire = bin_folder / "kwire"
        kwire.write_text(f'#!/bin/sh\nexec {sys.executable} -m kwire.server "$@"\n')
        kwire.chmod(0o755)

    def moved(self, text: str) -> str:
        """A text in which the container's paths and ports are replaced."""
        folders = "|".join(map(re.escape, FOLDERS))
        text = re.sub(rf"(?<![\w/])(?:{folders})", lambda found: f"{self.root}{found[0]}", text)
        for port, here in self.ports.items():
            text = re.sub(rf"\b{port}\b", str(here), text)
        return text

    def put(self, path: str, text: str) -> Path:
        """Copy a file into it."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.moved(text))
        file.chmod(0o777)
        return file

    def run(self, command: str, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        """Run a command as the container's process."""
        work = self.root / "home"
        work.mkdir()
        return subprocess.Popen(
            ["sh", "-c", self.moved(command)],
            cwd=work,
            env={
                "PATH": f"{self.root}/bin:{os.environ['PATH']}",
                **{name: self.moved(value) for name, value in environment.items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


@pytest.fixture
def container(tmp_path: Path) -> Iterator[Container]:
    yield Container(tmp_path / "container", {port: free_port() for port in PORTS})


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("bash") is None, reason="the modules' scripts are for bash")
@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.name)
def test_module_gets_the_broker_that_it_waits_for(module: Module, container: Container) -> None:
    cluster = "bXlvd25jbHVzdGVyaWQxMg=="
    port = container.ports[str(module.port)]
    script = f"{container.root}{module.script_path}"
    environment = {
        name: value.format(cluster=cluster) for name, value in module.environment.items()
    }
    process = container.run(module.command.format(script=module.script_path), environment)
    try:
        text = module.script.format(
            host="localhost", port=port, hostname="localhost", cluster=cluster
        )
        # Under another name first: a module's archive is complete before the loop can see it.
        container.put(f"{module.script_path}.part", text).rename(script)
        log = until(process, module.log)
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        described = client.describe_cluster(request_timeout=60).result()
        [node] = described.nodes
        assert (node.id, node.port) == (1, port)
        if module.cluster_id is not None:
            assert described.cluster_id == module.cluster_id.format(cluster=cluster)
        assert send(producer(f"localhost:{port}"), "orders").offset() == 0
        users = client.describe_user_scram_credentials(list(module.users)) if module.users else {}
        for name, found in users.items():
            assert [each.mechanism.name for each in found.result().scram_credential_infos] == [
                module.users[name].replace("-", "_")
            ]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        rest, _ = process.communicate(timeout=90)
    assert "Traceback" not in log + rest.decode()


def until(process: subprocess.Popen[bytes], pattern: str, timeout_s: float = 60.0) -> str:
    """The log up to a line that matches."""
    assert process.stdout is not None
    log = b""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        readable, _, _ = select.select([process.stdout], [], [], left)
        more = os.read(process.stdout.fileno(), 65536) if readable else b""
        if not more:
            break
        log += more
        if re.search(rf"^{pattern}$", log.decode(), re.MULTILINE):
            return log.decode()
    raise AssertionError(f"no line {pattern}:\n{log.decode()}")
