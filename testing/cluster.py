"""A cluster of brokers in this process, any of which can be killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from kwire.server.client.requests import GROUP, TRANSACTION

from . import folders
from .client import groups, topics
from .clock import Clock
from .in_process import InProcess

if TYPE_CHECKING:
    from .node import Node
    from .thread import LoopThread


class Cluster(InProcess):
    """Several brokers that replicate to each other over real connections, as with ZooKeeper in Apache Kafka 3.9.

        with Cluster(3) as cluster:
            topic = cluster.topic(partitions=3)
            cluster.kill(cluster.leader(topic))

    Shape: broker ids begin with 1. New topics have a replica on up to three brokers. All brokers run on one thread and have one clock.
    Faults are for the requests of clients to any broker, and with `from_broker` for those of brokers. Errors of `start`: as for `Broker`.
    """

    def __init__(self, brokers: int = 3, properties: Mapping[str, Any] | None = None) -> None:
        super().__init__(properties)
        if brokers not in range(1, 10):
            raise ValueError(f"a cluster has 1 to 9 brokers, not {brokers!r}")
        self.replication_factor = min(brokers, 3)
        self._size = brokers
        self._ports: dict[int, str] = {}
        self._tree: Any = None

    def start(self) -> Self:
        """Start all brokers; when this returns, clients can connect to each."""
        for number in range(1, self._size + 1):
            self._folders[number] = folders.new_directory(f"broker{number}")

        async def start(thread: LoopThread) -> None:
            from .node import new_tree

            self._tree = await new_tree(thread.clock)

        self._begin(start)
        try:
            for number in range(1, self._size + 1):
                self.start_broker(number)
        except BaseException:
            self.stop()
            raise
        self.bootstrap_servers = ",".join(node.address for node in self._nodes.values())
        self._clock = Clock(self._running(), self._keep_members, self._changed.set)
        return self

    def _keep_members(self) -> None:
        for node in self._nodes.values():
            node.keep_members()

    def stop(self) -> None:
        """Stop all brokers and remove their data; harmless if none runs."""
        self._finish(orderly=False)

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of the brokers that run."""
        return tuple(sorted(self._nodes))

    def kill(self, broker: int) -> None:
        """Kill a broker, as by SIGKILL; the others notice it immediately.

        Shape: its data stay for `start_broker`. Errors: ValueError if it is not running.
        """
        thread, node = self._running(), self._node(broker)
        address = node.address

        async def crash() -> None:
            del self._nodes[broker]
            await node.crash()

        thread.call(crash)
        self._forget(address)
        self._changed.set()

    def start_broker(self, broker: int) -> None:
        """Start a broker that was killed, on its port and data. Errors: ValueError if it runs, or there is none."""
        thread = self._running()
        if broker in self._nodes or broker not in self._folders:
            raise ValueError(
                f"broker {broker} {'is already running' if broker in self._nodes else 'does not exist'}"
            )
        properties = {
            "default.replication.factor": str(self.replication_factor),
            "offsets.topic.replication.factor": str(self.replication_factor),
            "transaction.state.log.replication.factor": str(self.replication_factor),
            "transaction.state.log.min.isr": str(min(self.replication_factor, 2)),
            "share.coordinator.state.topic.replication.factor": str(self.replication_factor),
            "share.coordinator.state.topic.min.isr": str(min(self.replication_factor, 2)),
            "listeners": f"PLAINTEXT://127.0.0.1:{self._ports.get(broker, 0)}",
            **self._properties,
            "node.id": str(broker),
        }

        async def start() -> None:
            from .node import Node

            node = Node(
                thread.loop,
                thread.clock,
                properties,
                self._folders[broker],
                self._tree,
                as_zookeeper=True,
            )
            await node.start()
            self._nodes[broker] = node
            self._ports[broker] = node.address.rpartition(":")[2]
            self._tell_rules()
            self._tell_recorders()

        thread.call(start)
        self._changed.set()

    def expire_session(self, broker: int) -> None:
        """Expire a broker's ZooKeeper session, as if its heartbeats had been lost; the broker continues and registers
        again.

        Shape: returns when it has registered. If it was the controller, another broker may be the controller now.
        Errors: ValueError if it is not running; TimeoutError.
        """
        node = self._node(broker)

        async def expire() -> None:
            await node.expire_session()

        before = node.broker_epoch
        self._running().call(expire)
        self.wait_for(
            lambda: node.broker_epoch > before, message=f"broker {broker} has not registered again"
        )

    def move_leader(self, topic: str, partition: int = 0, *, to: int | None = None) -> int:
        """Move the leadership of a partition, and return the new leader's id; without `to`, to any in-sync replica.

        Shape: as an operator does it: the replica becomes the preferred one, then an election is held. Returns when it
        leads. Errors: ValueError if the broker has no replica of the partition, or is not in sync.
        """
        row = self._partition(topic, partition)
        others = [each for each in row.isr_nodes if each != row.leader_id]
        target = to if to is not None else next(iter(others), row.leader_id)
        if target not in row.isr_nodes or target not in self._nodes:
            known = ", ".join(map(str, sorted(set(row.isr_nodes) & set(self._nodes))))
            raise ValueError(
                f"broker {target} cannot lead {topic}-{partition}; in sync are {known}"
            )
        replicas = [target, *(each for each in row.replica_nodes if each != target)]
        topics.prefer(self.client, topic, partition, replicas)

        def led() -> bool:
            topics.elect_preferred(self.client, topic, partition)
            return bool(self._partition(topic, partition).leader_id == target)

        self.wait_for(led, message=f"broker {target} does not lead {topic}-{partition}")
        return target

    def coordinator(self, *, group: str | None = None, transactional_id: str | None = None) -> int:
        """The id of the broker that coordinates a group, or the transactions of a producer."""
        return self.leader(*self._coordinated(group, transactional_id))

    def move_coordinator(
        self,
        *,
        group: str | None = None,
        transactional_id: str | None = None,
        to: int | None = None,
    ) -> int:
        """Have another broker coordinate a group, or the transactions of a producer; return its id.

        Shape and errors: as for `move_leader`. All that is in the same partition of the internal topic moves with it.
        """
        topic, partition = self._coordinated(group, transactional_id)
        return self.move_leader(topic, partition, to=to)

    def _coordinated(self, group: str | None, transactional_id: str | None) -> tuple[str, int]:
        """The partition whose leader is the coordinator."""
        from kwire.server.coordinator.common.partitioner import partition_for

        if (group is None) == (transactional_id is None):
            raise ValueError("a coordinator is that of a group or of a transactional_id: name one")
        key, topic = group, "__consumer_offsets"
        if group is None:
            key, topic = transactional_id, "__transaction_state"
        assert key is not None
        groups.coordinator(
            self.client, key, GROUP if group is not None else TRANSACTION
        )  # makes the topic
        return topic, partition_for(key, len(topics.partitions(self.client, topic)))

    def leader(self, topic: str, partition: int = 0) -> int:
        """Wait until a running broker leads a partition, and return its id."""
        return self.wait_for(
            lambda: (found := self._partition(topic, partition).leader_id) in self._nodes and found,
            message=f"leader of {topic}-{partition}",
        )

    def in_sync(self, topic: str, partition: int = 0) -> tuple[int, ...]:
        """The ids of the replicas in sync."""
        return tuple(sorted(self._partition(topic, partition).isr_nodes))

    @property
    def controller(self) -> int:
        """Wait until a running broker is the controller, and return its id."""
        return self.wait_for(
            lambda: (found := self.client.controller_id()) in self._nodes and found,
            message="controller",
        )

    def _partition(self, topic: str, partition: int) -> Any:
        for row in topics.partitions(self.client, topic):
            if row.partition_index == partition:
                return row
        raise ValueError(f"topic {topic!r} has no partition {partition}")

    def _node(self, broker: int) -> Node:
        if broker not in self._nodes:
            known = ", ".join(map(str, self._nodes))
            raise ValueError(f"broker {broker} is not running; running brokers: {known}")
        return self._nodes[broker]
