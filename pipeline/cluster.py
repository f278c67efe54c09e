"""What jobs ask the brokers outside of Spark (topics, offsets, a group's commits), with confluent-kafka."""

from __future__ import annotations

import re
import socket
import time
from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from .committer import Committed, OffsetCommitter, committed
from .offsets import Offsets
from .options import chosen_topics
from .problems import Problem, WrongCall
from .topic_ids import id_text

#: Seconds after which a cluster that does not answer counts as absent.
PATIENCE = 15.0
#: How many times longer the wait is for a cluster that has answered before.
LONGER = 8

#: Seconds for the first connection to be accepted or refused, and between a refusal and a second attempt.
CONNECT_S = 1.0
REFUSED_AGAIN_S = 0.3

#: Seconds for which a known topic may be missing.
GONE_S = 2.0

#: Seconds between two requests about a partition without a leader.
AGAIN_S = 0.2


class Cluster:
    """One cluster; each call raises Problem when no broker answers.

    A context manager, so that the client's threads end with the job.
    """

    def __init__(self, bootstrap: str, properties: Iterable[tuple[str, str]] = ()) -> None:
        check_addresses(bootstrap)
        self.bootstrap = bootstrap
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "socket.connection.setup.timeout.ms": 5000,
            # The logger is silent, too, but at its end the client writes by itself what the logger has not taken.
            "log_level": 0,
            **dict(properties),
        }
        self._refusal = ""
        try:
            noting: dict[str, Any] = {**self._settings, "error_cb": self._note}
            self._admin = AdminClient(noting, logger=silent())
        except KafkaException as error:
            # No broker has been asked yet, so a setting's name or value is wrong.
            raise WrongCall(f"--client-property: {error.args[0].str()}") from error
        self._committers: dict[str, OffsetCommitter] = {}
        self._is_first = True
        self._has_answered = False
        self._known: list[str] = []

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        while self._committers:
            self._committers.popitem()[1].close()

    def _note(self, error: KafkaError) -> None:
        """Keep why a login or a certificate is refused, which the call that waits for it does not say."""
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            text = re.sub(r"^\w+://\S+: | \(after \d+ms in state \w+\)$", "", error.str())
            self._refusal = text

    def settings(self, **more: str | int | float | bool) -> dict[str, str | int | float | bool]:
        """Settings for a client of this cluster."""
        return {**self._settings, **more}

    def partitions(self) -> dict[str, int]:
        """Topic -> number of partitions, for all topics except internal ones."""
        if self._is_first and (why := refused(self.bootstrap)):
            raise Problem(f"no broker answers at {self.bootstrap}: {why}")
        self._is_first = False
        self._admin.poll(0)
        self._refusal = ""  # a refusal before this call need not be why this call fails
        try:
            listed = self._admin.list_topics(timeout=PATIENCE)
        except KafkaException as error:
            self._admin.poll(0)
            if self._refusal:
                raise Problem(
                    f"there is no connection to {self.bootstrap}: {self._refusal}"
                ) from error
            raise Problem(f"no broker answers at {self.bootstrap}: {reason(error)}") from error
        self._has_answered = True
        self._known = [f"{each.host}:{each.port}" for each in listed.brokers.values()]
        return {
            name: len(topic.partitions)
            for name, topic in listed.topics.items()
            if not name.startswith("__") and topic.error is None
        }

    @property
    def servers(self) -> str:
        """The addresses given, and those of the brokers there were when `partitions` last asked: one of them may answer still."""
        return ",".join(dict.fromkeys([*self.bootstrap.split(","), *self._known]))

    def chosen(self, options: Namespace) -> dict[str, int]:
        """Topic -> number of partitions, for the topics that `--topics` or `--topics-pattern` select.

        Raises Problem for a topic that does not exist; a pattern may match nothing yet.
        """
        return chosen_topics(options, self.partitions(), self.where)

    @property
    def where(self) -> str:
        """Where topics are, as messages say it."""
        return f"at {self.bootstrap}"

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Topic -> its id, as Kafka's tools write it; a topic created again under the same name has another.

        Topics that do not exist are left out; before Kafka 2.8 brokers have no ids, and the result is empty.
        """
        left = list(dict.fromkeys(topics))
        found = {}
        began = time.monotonic()
        while left:
            answers = self._admin.describe_topics(TopicCollection(left), request_timeout=PATIENCE)
            for name, answer in answers.items():
                try:
                    text = id_text(answer.result().topic_id)
                except KafkaException as error:
                    if error.args[0].code() <= 0:
                        # A broker that ends before it answers may be back at once.
                        if _is_final(error) or time.monotonic() - began > self._patience:
                            raise Problem(
                                f"cannot ask for the id of topic {name}: {reason(error)}{_may_repeat(error)}"
                            ) from error
                        continue
                    text = None  # it has no such topic, or not for us
                left.remove(name)
                if text is not None:
                    found[name] = text
            time.sleep(AGAIN_S if left else 0)
        return found

    def ends(self, topics: Mapping[str, int], *, read_committed: bool = False) -> Offsets:
        """The offset after the last record of each partition (the last stable offset, if read_committed)."""
        return self._offsets(topics, OffsetSpec.latest(), read_committed)

    def starts(self, topics: Mapping[str, int]) -> Offsets:
        """The first offset each partition still has."""
        return self._offsets(topics, OffsetSpec.earliest(), False)

    def _offsets(
        self, topics: Mapping[str, int], which: OffsetSpec, read_committed: bool
    ) -> Offsets:
        from confluent_kafka import IsolationLevel

        left = {
            TopicPartition(topic, number): which
            for topic, count in topics.items()
            for number in range(count)
        }
        level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        found: Offsets = {}
        began = time.monotonic()
        while left:
            answers = self._admin.list_offsets(
                left, isolation_level=level, request_timeout=PATIENCE
            )
            for place, answer in answers.items():
                try:
                    found[place.topic, place.partition] = answer.result().offset
                    del left[place]
                except KafkaException as error:
                    waited = time.monotonic() - began
                    # A broker that has just started needs a moment until it knows its topics and leads their partitions.
                    if waited > GONE_S and self._is_gone(place.topic):
                        raise Problem(
                            f"there is no topic {place.topic} at {self.bootstrap}"
                        ) from error
                    if _is_final(error) or waited > self._patience:
                        raise Problem(
                            f"cannot ask for offsets of {place.topic}-{place.partition}: {reason(error)}{_may_repeat(error)}"
                        ) from error
            time.sleep(AGAIN_S if left else 0)
        return found

    @property
    def _patience(self) -> float:
        """Seconds for which a question is asked again."""
        return PATIENCE * (LONGER if self._has_answered else 1)

    def _is_gone(self, topic: str) -> bool:
        """Whether a broker says that there is no such topic; one that does not answer says nothing, if it has answered before."""
        try:
            return topic not in self.partitions()
        except Problem:
            if not self._has_answered:
                raise
            return False

    def commit(self, group: str, offsets: Offsets) -> None:
        """Store offsets for a group without members."""
        try:
            if group not in self._committers:
                self._committers[group] = OffsetCommitter(self._settings, group, silent())
            self._committers[group].commit(offsets, PATIENCE)
        except KafkaException as error:
            raise Problem(f"cannot commit offsets of group {group}: {reason(error)}") from error

    def committed(
        self, group: str, topics: Mapping[str, int] | None = None, patience_s: float = PATIENCE
    ) -> dict[tuple[str, int], Committed]:
        """The offsets that a group has committed, for some topics (with their numbers of partitions) or for all.

        Empty for an unknown group.
        """
        asked = self.partitions() if topics is None else topics
        places = [(topic, number) for topic, count in asked.items() for number in range(count)]
        try:
            return committed(self._settings, group, places, patience_s, silent())
        except KafkaException as error:
            raise Problem(f"cannot read offsets of group {group}: {reason(error)}") from error

    def consumer(self, **more: str | int | float | bool) -> Consumer:
        """A consumer that, unless told to, commits nothing and joins no group."""
        more = {"group.id": "kwire-pipeline", "enable.auto.commit": False, **more}
        return Consumer(self.settings(**more), logger=silent())


def check_addresses(bootstrap: str) -> None:
    """Raises WrongCall for an address whose port is not one: the client would take it for a broker that does not answer."""
    for address in bootstrap.split(","):
        _, colon, port = address.strip().rpartition(":")
        if colon and not port.endswith("]") and not (port.isdecimal() and 0 < int(port) < 1 << 16):
            raise WrongCall(f"--bootstrap-server {address.strip()}: {port!r} is not a port")


def refused(bootstrap: str) -> str | None:
    """Why none of these addresses can be reached; None if one of them can, or if that cannot be found out at once.

    Clients would keep trying, which is right if the brokers were reachable before, but makes a user with a wrong address wait
    for the whole timeout.
    """
    why = None
    for _ in range(2):
        time.sleep(REFUSED_AGAIN_S if why else 0)
        for address in bootstrap.split(","):
            host, colon, port = address.strip().rpartition(":")
            try:
                socket.create_connection(
                    (host.strip("[]"), int(port)) if colon else (port, 9092), CONNECT_S
                ).close()
            except ConnectionRefusedError as error:
                why = str(error.strerror)
            except socket.gaierror as error:
                if error.errno != socket.EAI_NONAME:
                    return None
                why = str(error.strerror)
            except (OSError, ValueError):
                return None
            else:
                return None
    return why


def _is_final(error: KafkaException) -> bool:
    """Whether asking again is of no use: there is no such topic, or we are not authorized."""
    return error.args[0].code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    )


def _may_repeat(error: KafkaException) -> str:
    """What a message about a broker that did not answer ends with; nothing if the broker has answered."""
    return "" if _is_final(error) else "; nothing is lost: run the same command again"


def reason(error: KafkaException) -> str:
    """librdkafka's message, without its codes."""
    inner = error.args[0]
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def silent() -> object:
    """Discard librdkafka's own log lines (connection refused, repeated), which say less than our message."""
    import logging

    logger = logging.getLogger("kwire.pipeline.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
