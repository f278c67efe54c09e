"""Apache Kafka's broker configs that kwire accepts, checks and shows, but that have no effect.

Columns as in broker_keys.py, without the last one. `NEWER_NAMES` are keys added after 3.9, for which only the name is
known.
"""

from __future__ import annotations

from .definitions import (
    NON_EMPTY,
    NON_EMPTY_LIST,
    POOL_SIZE,
    VERSION,
    ConfigKey,
    ConfigType,
    UpdateMode,
    at_least,
    between,
    one_of,
)

key = ConfigKey
BOOLEAN, STRING, INT, SHORT = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.SHORT,
)
LONG, DOUBLE, LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST
CLASS, PASSWORD = ConfigType.CLASS, ConfigType.PASSWORD
HIGH, MEDIUM, LOW = "HIGH", "MEDIUM", "LOW"
PER_BROKER, CLUSTER_WIDE = UpdateMode.PER_BROKER, UpdateMode.CLUSTER_WIDE

# fmt: off
INERT_BROKER_KEYS: tuple[ConfigKey, ...] = (
    key("alter.config.policy.class.name", CLASS, None, LOW),
    key("alter.config.policy.kraft.compatibility.enable", BOOLEAN, "false", LOW),
    key("auto.include.jmx.reporter", BOOLEAN, "true", LOW),
    key("background.threads", INT, "10", HIGH, CLUSTER_WIDE, valid=at_least(1)),
    key("broker.heartbeat.interval.ms", INT, "2000", MEDIUM),
    key("broker.session.timeout.ms", INT, "9000", MEDIUM),
    key("client.quota.callback.class", CLASS, None, LOW),
    key("control.plane.listener.name", STRING, None, HIGH),
    key("controller.quorum.append.linger.ms", INT, "25", MEDIUM),
    key("controller.quorum.bootstrap.servers", LIST, "", HIGH, valid=NON_EMPTY_LIST),
    key("controller.quorum.election.backoff.max.ms", INT, "1000", HIGH),
    key("controller.quorum.election.timeout.ms", INT, "1000", HIGH),
    key("controller.quorum.fetch.timeout.ms", INT, "2000", HIGH),
    key("controller.quorum.request.timeout.ms", INT, "2000", MEDIUM),
    key("controller.quorum.retry.backoff.ms", INT, "20", LOW),
    key("controller.quorum.voters", LIST, "", HIGH, valid=NON_EMPTY_LIST),
    key("create.topic.policy.class.name", CLASS, None, LOW),
    key("delete.records.purgatory.purge.interval.requests", INT, "1", MEDIUM),
    key("early.start.listeners", STRING, None, HIGH),
    key("eligible.leader.replicas.enable", BOOLEAN, "false", HIGH),
    key("fetch.purgatory.purge.interval.requests", INT, "1000", MEDIUM),
    key("group.coordinator.append.linger.ms", INT, "10", MEDIUM, valid=at_least(0)),
    key("group.coordinator.new.enable", BOOLEAN, "false", MEDIUM, internal=True),
    key("group.coordinator.rebalance.protocols", LIST, "classic", MEDIUM, valid=one_of("consumer", "classic", "share", "unknown")),
    key("group.coordinator.threads", INT, "1", MEDIUM, valid=at_least(1)),
    key("group.share.enable", BOOLEAN, "false", MEDIUM, internal=True),
    key("group.share.max.groups", SHORT, "10", MEDIUM, valid=between(1, 100)),
    key("initial.broker.registration.timeout.ms", INT, "60000", MEDIUM),
    key("inter.broker.protocol.version", STRING, "3.9-IV0", MEDIUM, valid=VERSION),
    key("kafka.metrics.polling.interval.secs", INT, "10", LOW, valid=at_least(1)),
    key("kafka.metrics.reporters", LIST, "", LOW),
    key("log.dir.failure.timeout.ms", LONG, "30000", LOW, valid=at_least(1)),
    key("log.initial.task.delay.ms", LONG, "30000", LOW, valid=at_least(0), internal=True),
    key("log.local.retention.bytes", LONG, "-2", MEDIUM, CLUSTER_WIDE, valid=at_least(-2)),
    key("log.local.retention.ms", LONG, "-2", MEDIUM, CLUSTER_WIDE, valid=at_least(-2)),
    key("log.message.format.version", STRING, "3.0-IV1", MEDIUM, valid=VERSION),
    key("metadata.log.max.record.bytes.between.snapshots", LONG, "20971520", HIGH, valid=at_least(1)),
    key("metadata.log.max.snapshot.interval.ms", LONG, "3600000", HIGH, valid=at_least(0)),
    key("metadata.log.segment.bytes", INT, "1073741824", HIGH, valid=at_least(12)),
    key("metadata.log.segment.min.bytes", INT, "8388608", HIGH, valid=at_least(12), internal=True),
    key("metadata.log.segment.ms", LONG, "604800000", HIGH),
    key("metadata.max.idle.interval.ms", INT, "500", LOW, valid=at_least(0)),
    key("metadata.max.retention.bytes", LONG, "104857600", HIGH),
    key("metadata.max.retention.ms", LONG, "604800000", HIGH),
    key("metric.reporters", LIST, "", LOW, CLUSTER_WIDE),
    key("metrics.num.samples", INT, "2", LOW, valid=at_least(1)),
    key("metrics.recording.level", STRING, "INFO", LOW),
    key("metrics.sample.window.ms", LONG, "30000", LOW, valid=at_least(1)),
    key("num.io.threads", INT, "8", HIGH, CLUSTER_WIDE, valid=at_least(1)),
    key("num.network.threads", INT, "3", HIGH, CLUSTER_WIDE, valid=at_least(1)),
    key("num.replica.fetchers", INT, "1", HIGH, CLUSTER_WIDE),
    key("offsets.commit.required.acks", SHORT, "-1", HIGH),
    key("process.roles", LIST, "", HIGH, valid=one_of("broker", "controller")),
    key("producer.purgatory.purge.interval.requests", INT, "1000", MEDIUM),
    key("queued.max.requests", INT, "500", HIGH, valid=at_least(1)),
    key("remote.fetch.max.wait.ms", INT, "500", MEDIUM, CLUSTER_WIDE, valid=at_least(1)),
    key("remote.log.index.file.cache.total.size.bytes", LONG, "1073741824", LOW, CLUSTER_WIDE, valid=at_least(1)),
    key("remote.log.manager.copier.thread.pool.size", INT, "-1", MEDIUM, valid=POOL_SIZE),
    key("remote.log.manager.copy.max.bytes.per.second", LONG, "9223372036854775807", MEDIUM, CLUSTER_WIDE, valid=at_least(1)),
    key("remote.log.manager.copy.quota.window.num", INT, "11", MEDIUM, valid=at_least(1)),
    key("remote.log.manager.copy.quota.window.size.seconds", INT, "1", MEDIUM, valid=at_least(1)),
    key("remote.log.manager.expiration.thread.pool.size", INT, "-1", MEDIUM, valid=POOL_SIZE),
    key("remote.log.manager.fetch.max.bytes.per.second", LONG, "9223372036854775807", MEDIUM, CLUSTER_WIDE, valid=at_least(1)),
    key("remote.log.manager.fetch.quota.window.num", INT, "11", MEDIUM, valid=at_least(1)),
    key("remote.log.manager.fetch.quota.window.size.seconds", INT, "1", MEDIUM, valid=at_least(1)),
    key("remote.log.manager.task.interval.ms", LONG, "30000", LOW, valid=at_least(1)),
    key("remote.log.manager.task.retry.backoff.max.ms", LONG, "30000", LOW, valid=at_least(1), internal=True),
    key("remote.log.manager.task.retry.backoff.ms", LONG, "500", LOW, valid=at_least(1), internal=True),
    key("remote.log.manager.task.retry.jitter", DOUBLE, "0.2", LOW, valid=between(0, 0.5), internal=True),
    key("remote.log.manager.thread.pool.size", INT, "10", MEDIUM, valid=at_least(1)),
    key("remote.log.metadata.custom.metadata.max.bytes", INT, "128", LOW, valid=at_least(0)),
    key("remote.log.metadata.manager.class.name", STRING, "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", MEDIUM, valid=NON_EMPTY),
    key("remote.log.metadata.manager.class.path", STRING, None, MEDIUM),
    key("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", MEDIUM, valid=NON_EMPTY),
    key("remote.log.metadata.manager.listener.name", STRING, None, MEDIUM, valid=NON_EMPTY),
    key("remote.log.reader.max.pending.tasks", INT, "100", MEDIUM, valid=at_least(1)),
    key("remote.log.reader.threads", INT, "10", MEDIUM, valid=at_least(1)),
    key("remote.log.storage.manager.class.name", STRING, None, MEDIUM, valid=NON_EMPTY),
    key("remote.log.storage.manager.class.path", STRING, None, MEDIUM),
    key("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.", MEDIUM, valid=NON_EMPTY),
    key("remote.log.storage.system.enable", BOOLEAN, "false", MEDIUM),
    key("replica.socket.receive.buffer.bytes", INT, "65536", HIGH),
    key("request.timeout.ms", INT, "30000", HIGH),
    key("sasl.client.callback.handler.class", CLASS, None, MEDIUM),
    key("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", MEDIUM, PER_BROKER),
    key("sasl.kerberos.min.time.before.relogin", LONG, "60000", MEDIUM, PER_BROKER),
    key("sasl.kerberos.ticket.renew.jitter", DOUBLE, "0.05", MEDIUM, PER_BROKER),
    key("sasl.kerberos.ticket.renew.window.factor", DOUBLE, "0.8", MEDIUM, PER_BROKER),
    key("sasl.login.callback.handler.class", CLASS, None, MEDIUM),
    key("sasl.login.class", CLASS, None, MEDIUM),
    key("sasl.login.connect.timeout.ms", INT, None, LOW),
    key("sasl.login.read.timeout.ms", INT, None, LOW),
    key("sasl.login.refresh.buffer.seconds", SHORT, "300", MEDIUM, PER_BROKER),
    key("sasl.login.refresh.min.period.seconds", SHORT, "60", MEDIUM, PER_BROKER),
    key("sasl.login.refresh.window.factor", DOUBLE, "0.8", MEDIUM, PER_BROKER),
    key("sasl.login.refresh.window.jitter", DOUBLE, "0.05", MEDIUM, PER_BROKER),
    key("sasl.login.retry.backoff.max.ms", LONG, "10000", LOW),
    key("sasl.login.retry.backoff.ms", LONG, "100", LOW),
    key("sasl.mechanism.controller.protocol", STRING, "GSSAPI", HIGH),
    key("security.providers", STRING, None, LOW),
    key("server.max.startup.time.ms", LONG, "9223372036854775807", MEDIUM, valid=at_least(0), internal=True),
    key("socket.connection.setup.timeout.max.ms", LONG, "30000", MEDIUM),
    key("socket.connection.setup.timeout.ms", LONG, "10000", MEDIUM),
    key("ssl.engine.factory.class", CLASS, None, LOW, PER_BROKER),
    key("ssl.keymanager.algorithm", STRING, "SunX509", MEDIUM, PER_BROKER),
    key("ssl.protocol", STRING, "TLSv1.3", MEDIUM, PER_BROKER),
    key("ssl.provider", STRING, None, MEDIUM, PER_BROKER),
    key("ssl.secure.random.implementation", STRING, None, LOW, PER_BROKER),
    key("ssl.trustmanager.algorithm", STRING, "PKIX", MEDIUM, PER_BROKER),
    key("transaction.state.log.load.buffer.size", INT, "5242880", HIGH, valid=at_least(1)),
    key("unclean.leader.election.interval.ms", LONG, "300000", MEDIUM, valid=at_least(1), internal=True),
    key("unstable.api.versions.enable", BOOLEAN, "false", HIGH, internal=True),
    key("unstable.feature.versions.enable", BOOLEAN, "false", HIGH, internal=True),
    key("zookeeper.max.in.flight.requests", INT, "10", HIGH, valid=at_least(1)),
    key("zookeeper.metadata.migration.enable", BOOLEAN, "false", HIGH),
    key("zookeeper.metadata.migration.min.batch.size", INT, "200", MEDIUM, valid=at_least(1), internal=True),
)
# fmt: on

NEWER_NAMES: frozenset[str] = frozenset(
    """
    add.partitions.to.txn.retry.backoff.max.ms
    add.partitions.to.txn.retry.backoff.ms
    config.providers
    controller.performance.always.log.threshold.ms
    controller.performance.sample.period.ms
    controller.quorum.auto.join.enable
    controller.quorum.fetch.max.bytes
    controller.quorum.fetch.snapshot.max.bytes
    cordoned.log.dirs
    follower.fetch.last.tiered.offset.enable
    group.consumer.max.assignment.interval.ms
    group.consumer.min.assignment.interval.ms
    group.coordinator.background.threads
    group.coordinator.cached.buffer.max.bytes
    group.share.persister.class.name
    group.streams.assignment.interval.ms
    group.streams.heartbeat.interval.ms
    group.streams.initial.rebalance.delay.ms
    group.streams.max.assignment.interval.ms
    group.streams.max.heartbeat.interval.ms
    group.streams.max.session.timeout.ms
    group.streams.max.size
    group.streams.max.standby.replicas
    group.streams.min.assignment.interval.ms
    group.streams.min.heartbeat.interval.ms
    group.streams.min.session.timeout.ms
    group.streams.num.standby.replicas
    group.streams.session.timeout.ms
    internal.metadata.delete.delay.millis
    internal.metadata.log.segment.bytes
    internal.metadata.max.batch.size.in.bytes
    remote.list.offsets.request.timeout.ms
    remote.log.index.file.cache.ttl.ms
    remote.log.manager.follower.thread.pool.size
    sasl.oauthbearer.assertion.algorithm
    sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub
    sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase
    sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id
    sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class
    sasl.oauthbearer.scope
    share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes
    share.coordinator.load.buffer.size
    share.coordinator.state.topic.compression.codec
    share.coordinator.threads
    share.fetch.purgatory.purge.interval.requests
    transaction.two.phase.commit.enable
    """.split()  # noqa: SIM905 - a list of names reads better bare
)
