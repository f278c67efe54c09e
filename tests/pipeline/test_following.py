"""The progress that a job shows while it runs, and its group's commits; without Spark."""

from __future__ import annotations

import json
import logging
import signal
import socket
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from py4j.protocol import Py4JNetworkError

from kwire.pipeline import cluster as cluster_module
from kwire.pipeline import following
from kwire.pipeline.cluster import Cluster, refused
from kwire.pipeline.group_offsets import BatchOffsets
from kwire.pipeline.main import main
from kwire.pipeline.offsets import Offsets, kafka_offsets
from kwire.pipeline.problems import Problem, explain, unknown
from kwire.pipeline.progress import lag_words, line

from ..support.broker_process import free_port


class FakeCluster:
    """Accepts commits, or refuses them."""

    def __init__(self) -> None:
        self.commits: list[tuple[str, Offsets]] = []
        self.away = False

    def commit(self, group: str, offsets: Offsets) -> None:
        if self.away:
            raise Problem(f"cannot commit offsets of group {group}: nobody there")
        self.commits.append((group, offsets))


def progress(end: dict[str, dict[str, int]], latest: dict[str, dict[str, int]]) -> Any:
    topics = SimpleNamespace(
        description="KafkaV2[Subscribe[orders]]",
        endOffset=json.dumps(end),
        latestOffset=json.dumps(latest),
    )
    other = SimpleNamespace(description="kwire-log", endOffset='{"a": 1}', latestOffset=None)
    return SimpleNamespace(
        name=None,
        batchId=3,
        numInputRows=1200,
        batchDuration=2000,
        sources=[topics, other],
    )


def test_line_tells_rows_and_what_is_left() -> None:
    told = line(progress({"orders": {"0": 5, "1": 7}}, {"orders": {"0": 17, "1": 7}}), 1200)
    assert told == "batch 3: 1,200 rows, 600 rows/s, lag orders 0:12 1:0"


def test_topic_with_many_partitions_is_told_by_its_sum() -> None:
    behind = {("wide", number): number for number in range(64)}
    behind |= {("done", 0): 0, ("done", 1): 0, ("narrow", 0): 4}
    assert lag_words(behind) == "done 0; narrow 0:4; wide 2016 in 64 partitions, most 63 in 63"


def test_text_that_is_no_topics_offsets_is_none() -> None:
    assert kafka_offsets(None) == kafka_offsets("-1") == kafka_offsets('{"logOffset":0}') == {}


def test_latest_offsets_are_committed_and_a_failure_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = FakeCluster()
    offsets = BatchOffsets(cluster, "jobs")  # type: ignore[arg-type]

    def finished(end: int) -> None:
        event: Any = SimpleNamespace(progress=progress({"orders": {"0": end}}, {}))
        offsets.onQueryProgress(event)

    offsets.flush()
    finished(5)
    finished(9)
    offsets.flush()
    offsets.flush()
    assert cluster.commits == [("jobs", {("orders", 0): 9})]
    cluster.away = True
    finished(12)
    offsets.flush()
    offsets.flush()
    told = "kwire pipeline: cannot commit offsets of group jobs: nobody there; the job continues\n"
    assert capsys.readouterr().err == told
    cluster.away = False
    offsets.flush()
    assert cluster.commits[1:] == [("jobs", {("orders", 0): 12})]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\nkwire.pipeline.problems.Problem: it is {odd}\n\tat a.b", "it is {odd}"),
        ("java.io.IOException: No space left on device", "the disk is full"),
        ("PermissionError: [Errno 13] Permission denied: '/archive'", "to write /archive"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update", "another job uses the same"),
        (
            "Cannot fetch record for offset 7 in 120000 milliseconds",
            "no broker gave offset 7 within 120000 ms",
        ),
        (
            "org.apache.kafka.common.errors.TimeoutException: Timed out. Call: listNodes SQLSTATE: X",
            r"no broker answers any more (Timed out. Call: listNodes); nothing",
        ),
        (
            "[PATH_ALREADY_EXISTS] Path file:/a/_staging/archive.archive.4/data already exists.",
            "another job is also archiving to file:/a",
        ),
        (
            "Caused by: java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat a",
            "no client for this file system (org.apache.hadoop.fs.s3a.S3AFileSystem); --conf",
        ),
        (
            "org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided by TemporaryAWS",
            "S3 needs credentials, and none were found",
        ),
        ("Set(orders-1) are gone. Some data", "orders-1: no longer there"),
        (
            "kwire.pipeline.stored_batches.FetchRefused: cannot read orders-0 at offset 3: TOPIC_AUTHORIZATION_FAILED\n",
            "cannot read orders-0 at offset 3: TOPIC_AUTHORIZATION_FAILED",
        ),
        (
            ": java.net.ConnectException: Call From here/10.0.0.1 to nn:9000 failed on connection exception:"
            " java.net.ConnectException: Connection refused; For more details see:  http://wiki",
            "the storage at nn:9000 cannot be reached: Connection refused",
        ),
        (
            "java.net.SocketTimeoutException: Call From here/10.0.0.1 to nn:9000 failed on socket timeout exception:"
            " org.apache.hadoop.net.ConnectTimeoutException: 20000 millis timeout while waiting; For more",
            "the storage at nn:9000 cannot be reached: 20000 millis timeout while waiting",
        ),
        (
            "java.net.NoRouteToHostException: No Route to Host from  here/10.0.0.1 to nn:9000 failed on socket timeout"
            " exception: java.net.NoRouteToHostException: No route to host; For more",
            "the storage at nn:9000 cannot be reached: No route to host",
        ),
        (
            "java.io.IOException: DestHost:destPort nn:9000 , LocalHost:localPort here/10.0.0.1:0. Failed on local"
            " exception: java.io.IOException: Couldn't set up IO streams",
            "the storage at nn:9000 cannot be used: Couldn't set up IO streams",
        ),
        (
            'java.io.EOFException: End of File Exception between local host is: "here/10.0.0.1"; destination host is:'
            ' "nn":9000; : java.io.EOFException; For more',
            "what listens at nn:9000 closed the connection",
        ),
        (
            'java.net.UnknownHostException: Invalid host name: local host is: (unknown); destination host is: "nn":9000;'
            " java.net.UnknownHostException; For more",
            "the name nn is not known",
        ),
        ("java.io.IOException: Incomplete HDFS URI, no host: hdfs:///a", "hdfs:///a names no host"),
        (
            "SafeModeException: Cannot create file/a. Name node is in safe mode.\nThe reported",
            "namenode is in safe mode",
        ),
        (
            "StandbyException: Operation category READ is not supported in state standby. Visit",
            "the namenode in the path is in state standby",
        ),
        (
            "java.net.ConnectException: getFileStatus on s3a://lake/a: software.amazon.awssdk.core.exception.SdkClientException:"
            " Unable to execute HTTP request: Connect to s3:9 [/10.0.0.1] failed: Connection refused:    software.amazon",
            "the storage at s3:9 cannot be reached: Connection refused",
        ),
        (
            "java.net.UnknownHostException: getFileStatus on s3a://lake/a: software.amazon.awssdk.core.exception.SdkClientException:"
            " Received an UnknownHostException when attempting\nCaused by: java.net.UnknownHostException: s3.invalid\n",
            "the name s3.invalid is not known",
        ),
        (
            "org.apache.hadoop.fs.s3a.UnknownStoreException: `s3a://lake/a': getFileStatus on s3a://lake/a: software",
            "S3 has no bucket lake",
        ),
        (
            "java.nio.file.AccessDeniedException: s3a://lake/a: getFileStatus on s3a://lake/a: software.amazon.awssdk.services.s3"
            ".model.S3Exception: Forbidden (Service: S3, Status Code: 403, Request ID: null):null",
            "S3 refuses access to s3a://lake: the credentials are wrong",
        ),
        (
            "java.io.IOException: Failed to connect\nCaused by: java.net.ConnectException: Connection refused: a/b:1\n",
            "there is no connection: Connection refused: a/b:1",
        ),
        (
            "[STREAM_FAILED] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST",
            "did not start within Spark's ten seconds",
        ),
        (
            "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
            ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n",
            "its master does not answer",
        ),
        (
            "Caused by: java.lang.IllegalArgumentException: spark.sql.x should be int, but was none\n\tat a",
            "--conf spark.sql.x=none: the value must be of type int",
        ),
        (
            "[INVALID_CONF_VALUE.TIME_ZONE] The value 'X' in the config \"spark.z\" is invalid. SQLSTATE: 22",
            """--conf: The value 'X' in the config "spark.z" is invalid.""",
        ),
    ],
)
def test_error_of_spark_becomes_one_line(text: str, said: str) -> None:
    message = explain(RuntimeError(text))
    assert message is not None and said in message and "\n" not in message


@pytest.mark.parametrize(
    "text",
    [
        "[PATH_NOT_FOUND] Path does not exist: file:/a/topic=t/t-0.parquet. SQLSTATE: 42K03",
        "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///a/topic=t/t-0.parquet. File does not"
        " exist. It is possible\nCaused by: java.io.FileNotFoundException: File file:/a/topic=t/t-0.parquet does not exist",
    ],
)
def test_file_that_a_compaction_has_deleted_is_told(text: str) -> None:
    assert explain(RuntimeError(text)) == (
        "the archive's file /a/topic=t/t-0.parquet is gone (a compaction may have replaced it): run the same command again"
    )


def test_damaged_parquet_file_is_named_with_its_cause() -> None:
    said = (
        "An error occurred while calling o1.collect.\n"
        ": org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file"
        " file:///a/topic=t/t-0.parquet.  SQLSTATE: KD001\n\tat org.apache.spark.Some.class\n"
        "Caused by: java.io.IOException: outer\n"
        "Caused by: com.github.luben.zstd.ZstdIOException: Data corruption detected\n\tat a.b\n"
    )
    assert explain(RuntimeError(said)) == (
        "cannot read /a/topic=t/t-0.parquet: ZstdIOException: Data corruption detected"
    )
    full = said.replace("Data corruption detected", "No space left on device")
    assert str(explain(RuntimeError(full))).startswith("the disk is full")


def test_address_where_nobody_listens_is_told_at_once() -> None:
    nobody = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with pytest.raises(Problem, match=f"no broker answers at {nobody}: Connection refused"):
        Cluster(nobody).partitions()
    assert time.monotonic() - began < cluster_module.PATIENCE
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert refused(f"{nobody},127.0.0.1:{listening.getsockname()[1]}") is None


def test_refused_login_is_told_instead_of_a_broken_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster("h:1")

    class Refused:
        def list_topics(self, timeout: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata"))

        def poll(self, timeout: float) -> None:
            said = "sasl_ssl://h:1/bootstrap: SASL authentication error: no (after 5ms in state AUTH_REQ)"
            cluster._note(KafkaError(KafkaError._AUTHENTICATION, said))
            cluster._note(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))

    monkeypatch.setattr(cluster_module, "refused", lambda _: None)
    monkeypatch.setattr(cluster, "_admin", Refused())
    with pytest.raises(Problem) as told:
        cluster.partitions()
    assert str(told.value) == "there is no connection to h:1: SASL authentication error: no"


def test_refusal_of_an_earlier_call_is_not_why_a_later_one_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster("h:1")

    class Away:
        def list_topics(self, timeout: float) -> None:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT, "nobody there"))

        def poll(self, timeout: float) -> None:
            """There is nothing new."""

    monkeypatch.setattr(cluster_module, "refused", lambda _: None)
    monkeypatch.setattr(cluster, "_admin", Away())
    cluster._note(KafkaError(KafkaError._AUTHENTICATION, "SASL authentication error: no"))
    with pytest.raises(Problem, match="no broker answers at h:1: nobody there"):
        cluster.partitions()


def test_client_that_cannot_be_made_for_commits_does_not_end_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "`max.poll.interval.ms` is small"))

    monkeypatch.setattr(cluster_module, "OffsetCommitter", refuse)
    with Cluster("h:1") as cluster:
        offsets = BatchOffsets(cluster, "jobs")
        end: Any = SimpleNamespace(progress=progress({"orders": {"0": 5}}, {}))
        offsets.onQueryProgress(end)
        offsets.flush()
    said = "cannot commit offsets of group jobs: `max.poll.interval.ms` is small; the job continues"
    assert capsys.readouterr().err == f"kwire pipeline: {said}\n"


class FakeSpark:
    """Runs one query, which receives signals while it is waited for; remembers the calls."""

    def __init__(self, *signals: signal.Signals) -> None:
        self.streams = self
        self.runId = "run"
        self.calls: list[str] = []
        self._signals = signals

    def addListener(self, listener: Any) -> None:
        pass

    def removeListener(self, listener: Any) -> None:
        self.calls.append("remove")

    def start(self) -> FakeSpark:
        return self

    def awaitTermination(self, seconds: float) -> bool:
        for number in self._signals:
            signal.raise_signal(number)
        return False

    def exception(self) -> None:
        return None

    def stop(self) -> None:
        self.calls.append("stop")


def test_spark_is_left_alone_after_a_second_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that it interrupted leaves its answer unread."""
    monkeypatch.setattr(following, "LAST_EVENTS_S", 0)
    cluster: Any = FakeCluster()
    before = signal.getsignal(signal.SIGINT)
    once: Any = FakeSpark(signal.SIGINT)
    assert following.follow(once, once.start, cluster, "jobs", quiet=True) == 0
    assert once.calls == ["stop", "remove", "remove"]
    twice: Any = FakeSpark(signal.SIGINT, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        following.follow(twice, twice.start, cluster, "jobs", quiet=True)
    assert not twice.calls
    assert signal.getsignal(signal.SIGINT) is before


def test_signal_while_a_query_starts_asks_it_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "LAST_EVENTS_S", 0)
    spark: Any = FakeSpark()

    def start() -> Any:
        signal.raise_signal(signal.SIGINT)
        return spark

    cluster: Any = FakeCluster()
    assert following.follow(spark, start, cluster, "jobs", quiet=True) == 0
    assert spark.calls[0] == "stop"


def test_java_that_ended_before_it_gave_its_error_away_is_one_line() -> None:
    class Lost(Exception):
        def __str__(self) -> str:
            raise Py4JNetworkError("Answer from Java side is empty")

    assert str(explain(Lost())).startswith("Spark's Java process has ended")

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("odd")

    assert explain(Odd()) is None
    assert unknown(Odd()) == "Odd: ValueError: odd"


def test_error_nobody_knows_is_left_to_be_shown_whole_below_its_innermost_cause() -> None:
    error = RuntimeError("Error while instantiating\n\tat a.b")
    assert explain(error) is None
    assert unknown(error) == "RuntimeError: Error while instantiating"
    error.__cause__ = RuntimeError("x: y\nCaused by: z: outer\n\tat c\nCaused by: z: inner\n\tat d")
    assert unknown(error) == "z: inner"


@pytest.mark.usefixtures("hangup_not_ignored")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_while_queries_run_asks_them_to_stop(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with following._stopped_by_signals() as stopping:
        signal.raise_signal(number)
        assert stopping.is_set()
    assert signal.getsignal(number) is before


def test_closed_terminal_does_not_stop_queries_of_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with following._stopped_by_signals() as stopping:
            signal.raise_signal(signal.SIGHUP)
            assert not stopping.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_second_ctrl_c_does_not_wait() -> None:
    with following._stopped_by_signals():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize(
    ("number", "status", "how"),
    [
        (signal.SIGINT, 130, "was interrupted"),
        (signal.SIGTERM, 143, "was ended by SIGTERM"),
        (signal.SIGHUP, 129, "was ended by SIGHUP"),
        (signal.SIGUSR1, 1, ""),
    ],
)
def test_signal_that_breaks_the_connection_to_spark_is_one_line(
    number: signal.Signals,
    status: int,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("reentrant call")

    def run(_: object) -> None:
        try:
            signal.raise_signal(number)
        except RuntimeError:
            logging.getLogger("py4j.clientserver").exception("while sending command")
            raise

    monkeypatch.setattr("kwire.pipeline.status.job.run", run)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = signal.signal(number, broken)
    try:
        assert main(["status", "--checkpoint-dir=c"]) == status
        if how:
            assert capsys.readouterr().err == f"kwire pipeline: status {how}\n"
            assert not caplog.records
        else:
            # Any other signal explains no such error: its traceback is in a file that the second line names.
            first, second = capsys.readouterr().err.splitlines()
            assert first.endswith("failed unexpectedly: RuntimeError: reentrant call")
            said = Path(second.partition(" is in ")[2]).read_text()
            assert "Traceback (most recent call last)" in said and "while sending command" in said
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_signal_ends_a_job_that_has_nothing_to_finish(
    number: signal.Signals,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("kwire.pipeline.status.job.run", lambda _: signal.raise_signal(number))
    before = signal.signal(number, signal.SIG_DFL)
    try:
        assert main(["status", "--checkpoint-dir=c"]) == status
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err == f"kwire pipeline: status was ended by {number.name}\n"


def test_closed_terminal_does_not_end_a_job_of_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_: object) -> int:
        signal.raise_signal(signal.SIGHUP)
        return 0

    monkeypatch.setattr("kwire.pipeline.status.job.run", run)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["status", "--checkpoint-dir=c"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
