#!/opt/kwire/bin/python3
"""What makes kwire's image take the place of apache/kafka and confluentinc/cp-kafka: `kwire-image COMMAND`, or by a tool's name.

`configure` writes a properties file from the variables KAFKA_* and `launch` runs the broker with it. `kafka-storage`, `kafka-configs` and
`zookeeper-server-start` do as much of Kafka's tools as the start scripts of the Testcontainers modules need, by kwire's own commands.
compat/docker/README.md names the modules and their versions.
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

PROPERTIES = "/etc/kafka/kafka.properties"
#: The path at which users of apache/kafka mount a properties file, to which variables are added.
MOUNTED = "/mnt/shared/config/server.properties"
DATA_DIR = "/var/lib/kwire"
#: Variables that are not settings. Source: kafka.docker.KafkaDockerWrapper (4.0), kafka.properties.template of cp-kafka
#: (7.6).
NO_SETTINGS = frozenset(
    f"KAFKA_{name}"
    for name in [
        "VERSION",
        "HEAP_OPTS",
        "OPTS",
        "JMX_OPTS",
        "JMX_HOSTNAME",
        "JMX_PORT",
        "JVM_PERFORMANCE_OPTS",
        "GC_LOG_OPTS",
        "LOG4J_OPTS",
        "LOG4J_ROOT_LOGLEVEL",
        "LOG4J_LOGGERS",
        "LOG4J2_OPTS",
        "TOOLS_LOG4J_LOGLEVEL",
        "ZOOKEEPER_CLIENT_CNXN_SOCKET",
    ]
)
#: A broker without ZooKeeper is alone, so more replicas than one can never be made.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
#: The lines for which Testcontainers' modules wait in the log of Apache Kafka, with ZooKeeper and without. The first one
#: without is for Java and Go, the second one for Python and Rust; Node waits for the port.
READY_LINE_WITH_ZOOKEEPER = "[KafkaServer id={0}] started (kafka.server.KafkaServer)"
READY_LINES = """\
[BrokerLifecycleManager id={0}] The broker has been unfenced. Transitioning from RECOVERY to RUNNING. (kafka.server.BrokerLifecycleManager)
[KafkaRaftServer nodeId={0}] Kafka Server started (kafka.server.KafkaRaftServer)"""


class Impossible(Exception):
    """The request cannot be carried out; the message gives the reason."""


# -- settings


def setting_of(variable: str) -> str:
    """The setting of a variable: KAFKA_A_B__C___D is a.b_c-d, as in both images."""
    name = variable.removeprefix("KAFKA_").lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def settings_of(
    environment: Mapping[str, str], mounted: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The settings of a broker from the variables, over those of a mounted file. Errors: Impossible."""
    found = dict(mounted or {})
    for variable, value in sorted(environment.items()):
        if variable.startswith("KAFKA_") and variable not in NO_SETTINGS:
            found[setting_of(variable)] = value
    if not found.get("listeners"):
        advertised = found.get("advertised.listeners", "")
        found["listeners"] = re.sub(r"://[^,]*:", "://0.0.0.0:", advertised) or "PLAINTEXT://:9092"
    if not {"log.dirs", "log.dir"} & set(found) and "--control" not in options_of(environment):
        found["log.dirs"] = DATA_DIR
    if not found.get("zookeeper.connect"):
        check_quorum(found)
        found = {**ALONE, **found}
    return found


def check_quorum(settings: Mapping[str, str]) -> None:
    """Refuse settings that need KRaft controllers in addition to this broker. Errors: Impossible."""
    roles = {role.strip() for role in settings.get("process.roles", "broker").split(",")}
    if "broker" not in roles:
        raise Impossible(
            f"process.roles={','.join(sorted(roles))}: kwire has no KRaft controllers; leave this container out"
        )
    voters = [
        each for each in settings.get("controller.quorum.voters", "").split(",") if each.strip()
    ]
    own = settings.get("node.id") or settings.get("broker.id") or "1"
    others = [each for each in voters if each.partition("@")[0].strip() != own]
    if others:
        raise Impossible(
            f"controller.quorum.voters={','.join(voters)}: kwire has no KRaft controllers, so a broker without ZooKeeper is"
            " alone. Several brokers need KAFKA_ZOOKEEPER_CONNECT"
        )


def options_of(environment: Mapping[str, str]) -> list[str]:
    """Options of `kwire serve` that the variable KWIRE_SERVE_OPTIONS adds."""
    return shlex.split(environment.get("KWIRE_SERVE_OPTIONS", ""))


def as_properties(settings: Mapping[str, str]) -> str:
    """A properties file."""
    return "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(settings.items()))


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\n", "\\n")
    return f"\\{text}" if text[:1].isspace() else text


def read_properties(path: str) -> dict[str, str]:
    """The settings in a file; none if the file does not exist."""
    from kwire.server.config.properties import parse_properties

    try:
        return dict(parse_properties(Path(path).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def configure(_: Sequence[str]) -> None:
    """Write the properties file, and with CLUSTER_ID and no ZooKeeper give the log directories that id."""
    settings = settings_of(os.environ, read_properties(MOUNTED))
    path = Path(PROPERTIES)
    path.write_text(as_properties(settings), encoding="utf-8")
    path.chmod(0o600)  # it may have passwords
    cluster_id = os.environ.get("CLUSTER_ID")
    if cluster_id and not settings.get("zookeeper.connect"):
        format_directories(settings, cluster_id)


def ready_lines(environment: Mapping[str, str], settings: Mapping[str, str]) -> str:
    """The lines that follow the broker's own when it is ready; none unless the image takes the place of one of Kafka's."""
    if not any(name.startswith("KAFKA_") and name not in NO_SETTINGS for name in environment):
        return ""
    number = settings.get("node.id") or settings.get("broker.id") or "1"
    lines = READY_LINE_WITH_ZOOKEEPER if settings.get("zookeeper.connect") else READY_LINES
    return lines.format(number)


def launch(_: Sequence[str]) -> NoReturn:
    """Become the broker."""
    settings = read_properties(PROPERTIES)
    if lines := ready_lines(os.environ, settings):
        os.environ.setdefault("KWIRE_READY_LINES", lines)
    command = ["kwire", "serve", "--config", PROPERTIES, *options_of(os.environ)]
    if settings.get("zookeeper.connect") and "--control" in command:
        raise Impossible("--control is for a broker without ZooKeeper")
    os.execvp(command[0], command)


# -- tools of Apache Kafka


def format_directories(settings: Mapping[str, str], cluster_id: str) -> None:
    """Give new log directories the id of a cluster; one that has an id keeps it."""
    number = settings.get("node.id") or settings.get("broker.id")
    dirs = settings.get("log.dirs") or settings.get("log.dir") or ""
    for name in filter(None, (each.strip() for each in dirs.split(","))):
        file = Path(name) / "meta.properties"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            own = f"broker.id={number}\n" if number and number != "-1" else ""
            file.write_text(f"version=0\ncluster.id={cluster_id}\n{own}", encoding="utf-8")


def kafka_storage(words: Sequence[str]) -> None:
    """kafka-storage random-uuid, and format -t CLUSTER_ID -c FILE [--add-scram MECHANISM=[name=NAME,password=PASSWORD]]."""
    if list(words[:1]) == ["random-uuid"]:
        print(base64.urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip("="))
        return
    given = values_of(words[1:], flags=("--ignore-formatted", "-g", "--standalone", "-s"))
    cluster_id = first(given, "-t", "--cluster-id")
    file = first(given, "-c", "--config")
    if list(words[:1]) != ["format"] or not cluster_id or not file:
        raise Impossible("kafka-storage: only random-uuid, and format -t CLUSTER_ID -c FILE")
    settings = read_properties(file)
    format_directories(settings, cluster_id)
    for text in [*given.get("--add-scram", ()), *given.get("-S", ())]:
        mechanism, name, password = scram_user(text)
        add_user(["--data-dir", settings["log.dirs"].split(",")[0]], mechanism, name, password)


def kafka_configs(words: Sequence[str]) -> None:
    """kafka-configs --alter --zookeeper HOSTS --entity-type users --entity-name NAME --add-config MECHANISM=[password=PASSWORD]."""
    given = values_of(words, flags=("--alter",))
    hosts, name = first(given, "--zookeeper"), first(given, "--entity-name")
    text = first(given, "--add-config") or ""
    if (
        not hosts
        or not name
        or first(given, "--entity-type") != "users"
        or not text.startswith("SCRAM-")
    ):
        raise Impossible(
            "kafka-configs: only the password of a SCRAM user, by --zookeeper; for all others there is kwire configs"
        )
    mechanism, _, password = scram_user(text)
    add_user(["--zookeeper", hosts], mechanism, name, password)


def scram_user(text: str) -> tuple[str, str, str]:
    """Mechanism, name and password of MECHANISM=[name=NAME,iterations=N,password=PASSWORD]."""
    mechanism, _, rest = text.partition("=")
    fields = {
        part.partition("=")[0].strip(): part.partition("=")[2]
        for part in rest.strip("[] ").split(",")
    }
    if "password" not in fields:
        raise Impossible(f"{mechanism}: there is no password=")
    return mechanism, fields.get("name", ""), fields["password"]


def add_user(where: Sequence[str], mechanism: str, name: str, password: str) -> None:
    """Store the password of a user. Errors: CalledProcessError."""
    command = [
        "kwire",
        "users",
        *where,
        "add",
        name,
        "--mechanism",
        mechanism,
        "--password-file",
        "-",
    ]
    subprocess.run(command, input=f"{password}\n", text=True, check=True)


def zookeeper_server_start(words: Sequence[str]) -> NoReturn:
    """zookeeper-server-start FILE: serve kwire's store in ZooKeeper's protocol, at the port and in the directory in the
    file.
    """
    settings = read_properties(words[-1]) if words else {}
    port, directory = (
        settings.get("clientPort", "2181"),
        settings.get("dataDir", f"{DATA_DIR}/zookeeper"),
    )
    Path(directory).mkdir(parents=True, exist_ok=True)
    os.execvp("kwire", ["kwire", "zookeeper", "--listen", f":{port}", "--data-dir", directory])


def values_of(words: Sequence[str], flags: Sequence[str]) -> dict[str, list[str]]:
    """The values of options, by name."""
    found: dict[str, list[str]] = {}
    left = list(words)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if name in flags:
            continue
        if not equals or not name.startswith("--"):
            value = left.pop(0) if left else ""
        found.setdefault(name, []).append(value)
    return found


def first(given: Mapping[str, Sequence[str]], *names: str) -> str | None:
    """The value of an option that has several names."""
    return next((given[name][0] for name in names if name in given), None)


COMMANDS = {
    "configure": configure,
    "launch": launch,
    "kafka-storage": kafka_storage,
    "kafka-configs": kafka_configs,
    "zookeeper-server-start": zookeeper_server_start,
}


def main() -> int:
    """Run the command in the program's name or the first word."""
    words = [Path(sys.argv[0]).name.removesuffix(".sh"), *sys.argv[1:]]
    if words[0] not in COMMANDS:
        words = words[1:]
    if not words or words[0] not in COMMANDS:
        print(f"usage: kwire-image {'|'.join(COMMANDS)}", file=sys.stderr)
        return 2
    try:
        COMMANDS[words[0]](words[1:])
    except (Impossible, OSError, subprocess.CalledProcessError) as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
