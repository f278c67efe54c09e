"""How the Kafka modules of Testcontainers use a container: variables, command, copied script, condition for readiness.

Taken from their sources; the commits are those of the files. {host}, {port}, {hostname} and {cluster} stand for values
that a module fills in.
"""

from __future__ import annotations

from dataclasses import dataclass, field

_COMMON = {
    "KAFKA_INTER_BROKER_LISTENER_NAME": "BROKER",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
    "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS": "1",
    "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
}
_TRANSACTIONS = {
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
}
_FOREVER = {"KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "9223372036854775807"}
_BROKER = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "KAFKA_BROKER_ID": "1",
}
_KRAFT = {
    "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_BROKER_ID": "1",
    "KAFKA_NODE_ID": "1",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
_VOTERS = {"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9094"}
_ZOOKEEPER = """\
echo 'clientPort=2181' > zookeeper.properties
echo 'dataDir=/var/lib/zookeeper/data' >> zookeeper.properties
echo 'dataLogDir=/var/lib/zookeeper/log' >> zookeeper.properties
zookeeper-server-start zookeeper.properties &
"""
_WAIT = "while [ ! -f {script} ]; do sleep 0.1; done; "
_RUNNING = r".*Transitioning from RECOVERY to RUNNING.*"


@dataclass(frozen=True)
class Module:
    """One way in which a module starts a container.

    Shape: `shell` is the program of the command, whose argument after -c is `command`; `script_path` is the target path
    of `script`. `port` is the container's port for clients; `log` is a regular expression for the log line of
    readiness. `cluster_id` is the required id of the cluster.
    """

    name: str
    source: str
    environment: dict[str, str]
    command: str
    script_path: str
    script: str
    port: int
    log: str
    cluster_id: str | None = None
    users: dict[str, str] = field(default_factory=dict)


_JAVA = {
    **_COMMON,
    **_TRANSACTIONS,
    **_FOREVER,
    "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "KAFKA_PROCESS_ROLES": "broker,controller",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_NODE_ID": "1",
}
_JAVA_SCRIPT = """\
#!/bin/bash
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{host}:{port},BROKER://{hostname}:9093
"""
_NODE_WAIT = "echo 'Waiting for script...'; " + _WAIT
_NODE_SCRIPT = """\
#!/bin/bash
export KAFKA_ADVERTISED_LISTENERS=BROKER://{hostname}:9092,PLAINTEXT://{host}:{port}
"""
_PYTHON_END = """
export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{host}:{port},BROKER://$(hostname -i):9092
. /etc/confluent/docker/bash-config
/etc/confluent/docker/configure
/etc/confluent/docker/launch
"""
_PYTHON = {
    **_COMMON,
    "KAFKA_BROKER_ID": "1",
    "KAFKA_LOG_FLUSH_INTERVAL_MESSAGES": "10000000",
}

MODULES = (
    Module(
        "java, apache/kafka",
        "testcontainers-java 022884477838 modules/kafka/src/main/java/org/testcontainers/kafka/KafkaContainer.java",
        _JAVA,
        _WAIT + "{script}",
        "/tmp/testcontainers_start.sh",
        _JAVA_SCRIPT + "/etc/kafka/docker/run \n",
        9092,
        _RUNNING,
        "4L6g3nShT-eMCtK--X86sw",
    ),
    Module(
        "java, cp-kafka",
        "testcontainers-java 2df99f42dd2b modules/kafka/src/main/java/org/testcontainers/kafka/ConfluentKafkaContainer.java",
        _JAVA,
        _WAIT + "{script}",
        "/tmp/testcontainers_start.sh",
        _JAVA_SCRIPT + "/etc/confluent/docker/run \n",
        9092,
        _RUNNING,
        "4L6g3nShT-eMCtK--X86sw",
    ),
    Module(
        "java, cp-kafka with ZooKeeper",
        "testcontainers-java 1.19, org.testcontainers.containers.KafkaContainer",
        {
            **_COMMON,
            **_TRANSACTIONS,
            **_FOREVER,
            **_BROKER,
            "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
        },
        _WAIT + "{script}",
        "/testcontainers_start.sh",
        "#!/bin/bash\n"
        "export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://{host}:{port},BROKER://{hostname}:9092\n"
        "echo '' > /etc/confluent/docker/ensure \n" + _ZOOKEEPER + "/etc/confluent/docker/run \n",
        9093,
        r".*\[KafkaServer id=\d+\] started.*",
    ),
    Module(
        "python, with_kraft",
        "testcontainers-python 0869ba9ee298 modules/kafka/testcontainers/kafka/__init__.py",
        {**_PYTHON, **_KRAFT, **_VOTERS, "CLUSTER_ID": "{cluster}"},
        _WAIT + "sh {script}",
        "/tc-start.sh",
        """\
#!/bin/bash
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t {cluster} -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure
"""
        + _PYTHON_END,
        9093,
        r".*Kafka Server started.*",
        "{cluster}",
    ),
    Module(
        "python",
        "testcontainers-python 0869ba9ee298 modules/kafka/testcontainers/kafka/__init__.py",
        {**_PYTHON, **_BROKER},
        _WAIT + "sh {script}",
        "/tc-start.sh",
        "#!/bin/bash\n"
        + _ZOOKEEPER
        + "export KAFKA_ZOOKEEPER_CONNECT='localhost:2181'\n"
        + _PYTHON_END,
        9093,
        r".*\[KafkaServer id=\d+\] started.*",
    ),
    Module(
        "go",
        "testcontainers-go 012357323563 modules/kafka/kafka.go",
        {
            **_COMMON,
            **_TRANSACTIONS,
            **_FOREVER,
            **_KRAFT,
            **_VOTERS,
            "KAFKA_REST_BOOTSTRAP_SERVERS": _KRAFT["KAFKA_LISTENERS"],
        },
        _WAIT + "bash {script}",
        "/usr/sbin/testcontainers_start.sh",
        """\
#!/bin/bash
source /etc/confluent/docker/bash-config
export KAFKA_ADVERTISED_LISTENERS="PLAINTEXT://{host}:{port},BROKER://{hostname}:9092${{EXTRA_ADVERTISED_LISTENERS:+,${{EXTRA_ADVERTISED_LISTENERS}}}}"
echo Starting Kafka KRaft mode
sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure
echo 'kafka-storage format --ignore-formatted -t "$(kafka-storage random-uuid)" -c /etc/kafka/kafka.properties' >> /etc/confluent/docker/configure
echo '' > /etc/confluent/docker/ensure
/etc/confluent/docker/configure
/etc/confluent/docker/launch""",
        9093,
        _RUNNING,
    ),
    Module(
        "node",
        "testcontainers-node 00dad827b9e7 packages/modules/kafka/src/kafka-container.ts",
        {
            **_COMMON,
            **_FOREVER,
            **_BROKER,
            "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
            "KAFKA_CONFLUENT_SUPPORT_METRICS_ENABLE": "false",
            "KAFKA_ZOOKEEPER_CONNECT": "localhost:2181",
            "KAFKA_ADVERTISED_LISTENERS": "BROKER://localhost:9092",
        },
        _NODE_WAIT + "{script}",
        "/testcontainers_start.sh",
        _NODE_SCRIPT
        + "echo '' > /etc/confluent/docker/ensure \n"
        + _ZOOKEEPER
        + "/etc/confluent/docker/run \n",
        9093,
        r".*\[KafkaServer id=\d+\] started.*",
    ),
    Module(
        "node, withKraft and a user",
        "testcontainers-node 00dad827b9e7 packages/modules/kafka/src/kafka-container.ts",
        {
            **_COMMON,
            **_FOREVER,
            **_KRAFT,
            **_VOTERS,
            "CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw",
            "KAFKA_SASL_ENABLED_MECHANISMS": "SCRAM-SHA-512",
            "KAFKA_LISTENER_NAME_SECURE_SCRAM-SHA-512_SASL_JAAS_CONFIG": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        },
        _NODE_WAIT + "{script}",
        "/testcontainers_start.sh",
        _NODE_SCRIPT
        + """\
echo 'kafka-storage format --ignore-formatted -t "4L6g3nShT-eMCtK--X86sw" -c /etc/kafka/kafka.properties --add-scram "SCRAM-SHA-512=[name=app-user,password=userPassword]"' >> /etc/confluent/docker/configure
/etc/confluent/docker/run \n""",
        9093,
        _RUNNING,
        "4L6g3nShT-eMCtK--X86sw",
        users={"app-user": "SCRAM-SHA-512"},
    ),
)
