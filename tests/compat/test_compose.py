"""docker-compose.yml, its overrides and the Dockerfile, checked as data: names, ports, health, ids.

`python -m compat.docker.run` is the run on an engine.
"""

from __future__ import annotations

import re
import shutil
import ssl
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.x509 import load_pem_x509_certificate

from server.config import BrokerConfig
from server.config.endpoints import parse_host_port
from server.security.tls.contexts import load_credentials

ROOT = Path(__file__).resolve().parents[2]
BROKERS = ("kwire-1", "kwire-2", "kwire-3")
ENSEMBLE = ("zookeeper-1", "zookeeper-2", "zookeeper-3")


def read(name: str) -> dict[str, Any]:
    """A compose file with its anchors resolved."""
    loaded: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return loaded


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """The services of the file itself."""
    found: dict[str, Any] = read("docker-compose.yml")["services"]
    return found


def settings(service: dict[str, Any]) -> BrokerConfig:
    """The settings in a broker's command line, parsed as by the command. Errors: ConfigError."""
    words = [*service["entrypoint"], *service["command"]]
    assert words[:2] == ["kwire", "serve"]
    given = dict(
        word.removeprefix("--").split("=", 1) for word in words[2:] if "override" not in word
    )
    overrides = [word.removeprefix("--override=") for word in words if "override" in word]
    return BrokerConfig(
        {
            "log.dirs": given["data-dir"],
            "zookeeper.connect": given["zookeeper"],
            "broker.id": given["node-id"],
            **dict(override.split("=", 1) for override in overrides),
        }
    )


def ensemble_ports(service: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name -> quorum, election and client port, from each server's settings."""
    lines = service["environment"]["ZOO_SERVERS"].split()
    found = [re.fullmatch(r"server\.(\d)=(\S+?):(\d+):(\d+);(\d+)", line) for line in lines]
    return {match[2]: tuple(map(int, match.groups()[2:])) for match in found if match}


def test_there_are_three_brokers_and_an_ensemble_of_three(services: dict[str, Any]) -> None:
    assert set(services) == {*BROKERS, *ENSEMBLE}
    ids = [settings(services[name]).get_int("broker.id") for name in BROKERS]
    assert ids == [1, 2, 3]
    assert [services[name]["environment"]["ZOO_MY_ID"] for name in ENSEMBLE] == ["1", "2", "3"]


def test_every_port_is_used_once_so_that_all_fit_on_one_host(services: dict[str, Any]) -> None:
    used = [port for ports in ensemble_ports(services["zookeeper-1"]).values() for port in ports]
    for name in BROKERS:
        listeners = settings(services[name]).get_str("listeners").split(",")
        used += [int(listener.rsplit(":", 1)[1]) for listener in listeners]
    assert len(used) == 9 + 6
    assert len(set(used)) == len(used)


def test_brokers_are_told_every_server_at_its_client_port(services: dict[str, Any]) -> None:
    servers = ensemble_ports(services["zookeeper-1"])
    assert set(servers) == set(ENSEMBLE)
    expected = {(name, ports[2]) for name, ports in servers.items()}
    for name in BROKERS:
        connect = settings(services[name]).get_optional_str("zookeeper.connect") or ""
        assert {parse_host_port(part, name) for part in connect.split(",")} == expected


def test_brokers_find_each_other_by_name_and_clients_by_published_port(
    services: dict[str, Any],
) -> None:
    published = read("docker-compose.override.yml")["services"]
    for name in BROKERS:
        config = settings(services[name])
        listeners = dict(part.split("://:") for part in config.get_str("listeners").split(","))
        advertised = (config.get_optional_str("advertised.listeners") or "").split(",")
        assert config.get_optional_str("inter.broker.listener.name") == "BROKERS"
        assert set(advertised) == {
            f"BROKERS://{name}:{listeners['BROKERS']}",
            f"CLIENTS://localhost:{listeners['CLIENTS']}",
        }
        port = listeners["CLIENTS"]
        assert published[name] == {"ports": [f"127.0.0.1:{port}:{port}"]}


def test_every_service_has_its_own_volumes_and_a_health_check_of_its_port(
    services: dict[str, Any],
) -> None:
    compose = read("docker-compose.yml")
    mounted = [volume.split(":")[0] for name in services for volume in services[name]["volumes"]]
    assert sorted(mounted) == sorted(compose["volumes"])
    servers = ensemble_ports(services["zookeeper-1"])
    for name in ENSEMBLE:
        assert f"/dev/tcp/{name}/{servers[name][2]} " in services[name]["healthcheck"]["test"][-1]
    for name in BROKERS:
        listeners = settings(services[name]).get_str("listeners")
        asked = services[name]["healthcheck"]["test"]
        assert asked[:2] == ["CMD", "kwire-healthy"]
        assert f"CLIENTS://:{asked[2].removeprefix('localhost:')}" in listeners
        for server in ENSEMBLE:
            assert services[name]["depends_on"][server] == {"condition": "service_healthy"}


def test_loss_of_one_broker_leaves_what_acks_all_needs(services: dict[str, Any]) -> None:
    for name in BROKERS:
        config = settings(services[name])
        assert config.get_int("default.replication.factor") == 3
        assert config.get_int("min.insync.replicas") == 2


def test_host_override_puts_all_on_the_hosts_network_where_names_mean_loopback() -> None:
    override = read("docker-compose.host.yml")["services"]
    assert set(override) == {*BROKERS, *ENSEMBLE}
    for service in override.values():
        assert service["network_mode"] == "host"
        assert set(service["extra_hosts"]) == {f"{name}:127.0.0.1" for name in override}
        assert "ports" not in service
    assert all(
        "ports" not in service for service in read("docker-compose.yml")["services"].values()
    )


def test_image_is_built_from_a_chosen_base_and_runs_as_nobody_special() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert [line for line in lines if line.startswith("FROM ")] == [
        "FROM ${BASE} AS build",
        "FROM ${BASE}",
    ]
    users = [line for line in lines if line.startswith("USER ")]
    assert users == ["USER kwire"]
    sources = [line.split()[1:-1] for line in lines if re.match(r"COPY (?!--from)", line)]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for source in (word for words in sources for word in words):
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored, "the engine would not be given it"


@pytest.mark.slow
@pytest.mark.parametrize("override", ["override", "host", "override secure"])
@pytest.mark.parametrize("program", [("docker-compose",), ("docker", "compose")], ids="-".join)
def test_compose_reads_the_files(program: tuple[str, ...], override: str) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"needs {program[0]}")
    version = subprocess.run([*program, "version"], capture_output=True, check=False)
    if version.returncode != 0:
        pytest.skip(f"needs {' '.join(program)}")
    names = override.split()
    files = ["docker-compose.yml", *(f"docker-compose.{name}.yml" for name in names)]
    command = [*program, *(word for name in files for word in ("-f", name)), "config"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    services = yaml.safe_load(ran.stdout)["services"]
    assert set(services) == {*BROKERS, *ENSEMBLE}
    for name in BROKERS:
        mounted = [
            volume if isinstance(volume, str) else volume["target"]
            for volume in services[name]["volumes"]
        ]
        assert any("/var/lib/kwire" in volume for volume in mounted)
        assert any("/etc/kwire" in volume for volume in mounted) is ("secure" in names)
        assert settings(services[name]).listeners[0].is_encrypted is ("secure" in names)


def test_secured_brokers_have_the_ids_and_addresses_of_the_others(services: dict[str, Any]) -> None:
    secured = read("docker-compose.secure.yml")["services"]
    assert set(secured) == set(BROKERS)
    for name in BROKERS:
        given = {
            **secured[name],
            "command": [w for w in secured[name]["command"] if "http" not in w],
        }
        config, other = settings(given), settings(services[name])
        for key in ("broker.id", "listeners", "advertised.listeners", "zookeeper.connect"):
            assert config[key] == other[key]
        assert [endpoint.security_protocol for endpoint in config.listeners] == ["SSL", "SASL_SSL"]
        assert config.listener("BROKERS").get_str("ssl.client.auth") == "required"
        assert config.listener("CLIENTS").get_list("sasl.enabled.mechanisms") == ["SCRAM-SHA-512"]
        assert config.super_users == {"User:CN=broker", "User:admin"}
        (http,) = (word for word in secured[name]["command"] if "http" in word)
        assert http.removeprefix("--http=") in secured[name]["healthcheck"]["test"][-1]


def test_secured_brokers_can_use_the_certificate_that_the_documentation_makes(
    tmp_path: Path,
) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    text = (ROOT / "docs" / "security.md").read_text()
    section = text.partition("\n### In compose\n")[2].partition("\n## ")[0]
    console = section.partition("```console\n")[2].partition("```")[0].replace("\\\n", "")
    lines = [line.removeprefix("$ ") for line in console.splitlines()]
    made = [line for line in lines if line.split()[0] in ("mkdir", "openssl", "cat")]
    script = "umask 022\n" + "\n".join(made)
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True, capture_output=True)
    secrets = tmp_path / "secrets"
    assert stat.S_IMODE((secrets / "broker.pem").stat().st_mode) == 0o600, "it has the key"
    for name, service in read("docker-compose.secure.yml")["services"].items():
        assert service["volumes"] == ["./secrets:/etc/kwire:ro"]
        words = [word.replace("/etc/kwire", str(secrets)) for word in service["entrypoint"]]
        command = [word for word in service["command"] if "http" not in word]
        config = settings({"entrypoint": words, "command": command})
        listener = config.listener("BROKERS")
        for endpoint in config.listeners:
            listener = config.listener(endpoint.listener)
            read_file = lambda path: Path(path).read_bytes()  # noqa: E731
            made_of = load_credentials(listener, read_file, login=endpoint.has_logins)
            shake_hands(made_of.server, made_of.client, name)
        own = load_pem_x509_certificate((secrets / "ca.pem").read_bytes())
        assert f"User:{own.subject.rfc4514_string()}" in config.super_users


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """A handshake in memory with the credentials of both sides. Errors: SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
    for end in ends:
        assert end.version() is not None
        end.do_handshake()
