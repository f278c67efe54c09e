"""The settings of a broker in a test that differ from Apache Kafka's defaults."""

from __future__ import annotations

from collections.abc import Mapping

#: One partition is enough for internal topics, and nobody waits for more members of a group.
DEFAULTS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

#: For a broker whose time is commanded. Checkpoints are for a restart after a crash. A connection is not closed as idle,
#: because its client does not see that hours pass.
IN_PROCESS = {
    "replica.high.watermark.checkpoint.interval.ms": "3600000",
    "log.flush.offset.checkpoint.interval.ms": "3600000",
    "log.flush.start.offset.checkpoint.interval.ms": "3600000",
    "connections.max.idle.ms": str(100 * 365 * 86_400_000),
}

#: For a broker of a cluster: the name stands for the tree that the brokers share.
IN_CLUSTER = {
    "zookeeper.connect": "kwire-testing",
}


def with_defaults(properties: Mapping[str, str]) -> dict[str, str]:
    """The settings of a broker in a test, and above them those that are given."""
    defaults = dict(DEFAULTS)
    if "broker.id" in properties:  # the older name of node.id
        del defaults["node.id"]
    return {**defaults, **properties}


def refuse_unknown(properties: Mapping[str, str]) -> None:
    """Refuse settings that neither Apache Kafka nor kwire has. Errors: ValueError, with the nearest known one."""
    from kwire.server.config.broker_config import unknown_keys
    from kwire.server.config.tables import nearest

    for name in unknown_keys(properties):
        guess = nearest(name)
        hint = f"; did you mean {guess!r}?" if guess else ""
        raise ValueError(f"{name!r} is not a setting of Apache Kafka or kwire{hint}")
