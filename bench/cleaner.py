"""The cost of compaction: its speed, and the latency of other clients while it runs. python -m bench.cleaner

`speed`: MB/s of one round over a log of sealed segments on one core, both passes, per record size. `latency`: ms to
produce one 100-byte record with acks=all, and to fetch it back, on a separate topic, with the cleaner off and with it
always busy; the broker is a separate process. `bench.compaction` compares the speed with Apache Kafka's.
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kwire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kwire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.records.batch import BatchBuilder
from server.client.wire import Wire
from server.log.cleaner.log_cleaner import LogCleaner
from server.log.cleaner.worker import CleanSession, IoThrottle
from server.log.file_layer import FileLayer
from server.log.log import AppendInfo, Log
from server.log.log_config import LogConfig
from server.log.log_manager import LogManager
from server.metadata.topic_partition import TopicPartition
from tests.support.broker_process import KwireBroker

COMPACTED = TopicPartition("compacted", 0)
SEGMENT_BYTES = 64 << 20
SETTINGS = LogConfig(cleanup_policy=frozenset({"compact"}), segment_bytes=SEGMENT_BYTES)
PROBES = 3000


def fill(log: Log, total_bytes: int, record_bytes: int, codec: int = 0) -> None:
    """Write batches of 16 KiB in which each key occurs four times on average."""
    chooser = random.Random(1)
    keys = max(1, total_bytes // record_bytes // 4)
    pool = os.urandom(1 << 19).hex().encode()  # a codec halves its size
    now_ms = int(time.time() * 1000)
    written = 0
    while written < total_bytes:
        builder = BatchBuilder(codec=codec)
        while builder.size < 16_000:
            key = b"key-%010d" % chooser.randrange(keys)
            start = chooser.randrange(len(pool) - record_bytes)
            builder.append(now_ms, key, pool[start : start + record_bytes - len(key)])
        batch = memoryview(bytearray(builder.build()))
        info = log.append_as_leader(batch, 0, now_ms, prepared=True)
        assert isinstance(info, AppendInfo)
        written += builder.size
    log.high_watermark = log.log_end_offset
    log.roll(now_ms)
    log.flush(now_ms)  # only data on the device is compacted


def opened(folder: Path) -> LogManager:
    """The log directory, without a broker."""
    manager = LogManager([str(folder)], FileLayer())
    manager.load(lambda topic: SETTINGS, int(time.time() * 1000))
    return manager


def speed() -> None:
    """Print the time of one round for some shapes of records."""
    print(f"{'records':>10} {'codec':>6} {'MB':>5} {'s':>6} {'MB/s':>6} {'kept':>5}")
    for record_bytes, codec, megabytes in ((1000, 0, 256), (1000, 3, 256), (100, 0, 96)):
        with tempfile.TemporaryDirectory() as folder:
            manager = opened(Path(folder))
            log = manager.create(COMPACTED, None, SETTINGS)
            fill(log, megabytes << 20, record_bytes, codec)
            cleaner = LogCleaner(manager)
            now_ms = int(time.time() * 1000)
            round_ = cleaner.next_round(now_ms)
            assert round_ is not None
            started = time.process_time()
            throttle = IoThrottle(float("inf"), time.monotonic, time.sleep)
            session = CleanSession(round_.plan, log.layer, throttle)
            cleaner.keys_read(round_, session.read_keys().end_offset)
            read = kept = 0
            for sources in round_.groups:
                cleaned = session.clean(cleaner.group(round_, sources))
                cleaner.swap(round_, sources, cleaned, now_ms)
                read += cleaned.bytes_read
                kept += cleaned.size
            took = time.process_time() - started
            print(
                f"{record_bytes:>8} B {codec:>6} {read >> 20:>5} {took:>6.2f}"
                f" {read / took / 1e6:>6.0f} {kept / read:>5.0%}"
            )


def probe(broker: KwireBroker, *, until_compacted: bool) -> tuple[list[float], list[float]]:
    """Times of produces and fetches in ms, sorted; PROBES of each, or as many as time allows."""
    client = Wire.open((broker.host, broker.port), client_id="bench")
    builder = BatchBuilder()
    builder.append(int(time.time() * 1000), None, b"v" * 100)
    batch = builder.build()
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name="probe", partition_data=[PartitionProduceData(index=0, records=batch)]
            )
        ],
    )
    produced: list[float] = []
    fetched: list[float] = []
    offset = -1
    while not is_compacted(broker) if until_compacted else offset < PROBES:
        offset += 1
        started = time.perf_counter()
        client.send(produce, 7)
        client.receive_frame()
        between = time.perf_counter()
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic="probe", partitions=[partition])
        fetch = FetchRequest(
            replica_id=-1, max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=[topic]
        )
        client.send(fetch, 7)
        answer = client.receive_frame()
        fetched.append((time.perf_counter() - between) * 1000)
        produced.append((between - started) * 1000)
        assert len(answer.frame) > 100
        time.sleep(0.001)
    return sorted(produced), sorted(fetched)


def prepare(folder: Path) -> None:
    """Create a data directory with a probe topic, and a topic that takes long to compact."""
    broker = KwireBroker(folder, config={"log.cleaner.enable": "false"})
    with broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        settings = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
        topics = [NewTopic("probe", 1, 1), NewTopic(COMPACTED.topic, 1, 1, config=settings)]
        for future in admin.create_topics(topics).values():
            future.result()
    manager = opened(broker.log_dir)
    log = manager.get(COMPACTED)
    assert log is not None
    fill(log, 256 << 20, 100)
    manager.shutdown(int(time.time() * 1000))


def children(pid: int) -> list[int]:
    """The children of a process, and their children."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found


def cpu_of(stat: Path) -> float:
    """CPU seconds of a thread or process."""
    fields = stat.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_until_busy(broker: KwireBroker) -> None:
    """Wait until the cleaner's process has done some work."""
    while sum(cpu_of(Path(f"/proc/{pid}/stat")) for pid in children(broker.pid)) < 0.3:
        time.sleep(0.02)


def is_compacted(broker: KwireBroker) -> bool:
    """Whether the round is over, swap and checkpoint included."""
    path = broker.log_dir / "cleaner-offset-checkpoint"
    return path.exists() and COMPACTED.topic in path.read_text()


def latency() -> None:
    """Print percentiles with the cleaner off and busy, in turn."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder, "original"))
        print(f"{'cleaner':>8} {'':8} {'p50':>7} {'p99':>7} {'p99.9':>7}  ms")
        for number in range(4):
            enabled = number % 2 == 1
            copy = Path(folder, f"run-{number}")
            shutil.copytree(Path(folder, "original"), copy)
            config = {"log.cleaner.enable": str(enabled).lower(), "log.cleaner.backoff.ms": "1"}
            broker = KwireBroker(copy, config=config)
            with broker:
                if enabled:
                    wait_until_busy(broker)
                times_of_both = probe(broker, until_compacted=enabled)
                for name, times in zip(("produce", "fetch"), times_of_both, strict=True):
                    row = [times[int(len(times) * p)] for p in (0.5, 0.99, 0.999)]
                    figures = " ".join(f"{ms:>7.2f}" for ms in row)
                    print(f"{'busy' if enabled else 'off':>8} {name:8} {figures}", flush=True)
            shutil.rmtree(copy)


def main() -> None:
    """Run the parts that the arguments name, or all."""
    parts: dict[str, Callable[[], None]] = {"speed": speed, "latency": latency}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
