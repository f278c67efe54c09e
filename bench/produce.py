"""Broker CPU per Produce request, in pure Python and with the native module: python -m bench.produce

Two brokers, each in a separate process, get the same requests in turn, so that other load on the machine affects both:
idempotent, acks=all, version 11, uncompressed records of 1 KB, one connection with some requests in flight, topics of
one replica. CPU is user and system time of the broker process; medians of the rounds, with the spread.
"""

from __future__ import annotations

import argparse
import os
import platform
import socket
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from kwire.codec import decode, encode
from kwire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kwire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kwire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kwire.records.batch import BatchBuilder
from kwire.records.crc import crc32c
from tests.support.broker_process import KwireBroker

VERSION = 11
IN_FLIGHT = 4
RECORD_BYTES = 1000
#: The number of batches in a request, and the approximate size of each.
SHAPES = ((1, 1 << 10), (1, 16 << 10), (6, 16 << 10), (1, 128 << 10))
REQUESTS = {1 << 10: 4000, 16 << 10: 3000, 128 << 10: 1000}


class Client:
    """A connection that sends prepared requests, with their sequences and checksums set anew each time."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection(("127.0.0.1", port))
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ask(19, 5, self._topics())
        body = self._ask(22, 4, encode(InitProducerIdRequest(), 4))
        self.producer_id = decode(InitProducerIdResponse, body, 4, 5).producer_id
        self._sequences: dict[int, int] = {}

    @staticmethod
    def _topics() -> bytes:
        topic = CreatableTopic(name="bench", num_partitions=6, replication_factor=1)
        return encode(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        self._sock.sendall(framed(key, version, body))
        return self._answer()

    def _answer(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._sock.recv(size - len(data))
        return data

    def produce(self, batches: int, size: int, count: int) -> None:
        """Send this many requests, and read their answers."""
        builder = BatchBuilder(producer_id=self.producer_id, producer_epoch=0, base_sequence=0)
        now_ms = int(time.time() * 1000)
        records = 0
        while records == 0 or builder.size + RECORD_BYTES + 20 < size:
            builder.append(now_ms, None, bytes(min(RECORD_BYTES, size - 80)))
            records += 1
        batch = builder.build()
        rows = [PartitionProduceData(index=each, records=batch) for each in range(batches)]
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="bench", partition_data=rows)],
        )
        frame = bytearray(framed(0, VERSION, encode(request, VERSION)))
        places = [frame.index(batch)]
        while len(places) < batches:
            places.append(frame.index(batch, places[-1] + len(batch)))
        in_flight = 0
        for _ in range(count):
            for partition, at in enumerate(places):
                sequence = self._sequences.get(partition, 0)
                self._sequences[partition] = sequence + records
                frame[at + 53 : at + 57] = sequence.to_bytes(4, "big")
                checksum = crc32c(memoryview(frame)[at + 21 : at + len(batch)])
                frame[at + 17 : at + 21] = checksum.to_bytes(4, "big")
            self._sock.sendall(frame)
            in_flight += 1
            if in_flight == IN_FLIGHT:
                self._answer()
                in_flight -= 1
        for _ in range(in_flight):
            answer = self._answer()
        response = decode(ProduceResponse, answer, VERSION, 5)
        errors = {
            row.error_code for topic in response.responses for row in topic.partition_responses
        }
        assert errors == {0}, response


def framed(key: int, version: int, body: bytes) -> bytes:
    """A request frame with a header of version 2."""
    header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\0\5bench\0"
    return (len(header) + len(body)).to_bytes(4, "big") + header + body


def cpu_us(pid: int) -> float:
    """User and system time of all threads of a process, in microseconds; Linux only."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((each / "schedstat").read_text().split()[0]) for each in threads) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.produce")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    figures: dict[tuple[tuple[int, int], str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        brokers = {}
        for form in ("pure", "native"):
            os.environ["KWIRE_PURE"] = "1" if form == "pure" else "0"
            config = {"log.retention.bytes": "100000000", "log.segment.bytes": "50000000"}
            brokers[form] = KwireBroker(Path(folder) / form, config=config)
            brokers[form].start()
        try:
            clients = {name: Client(each.port) for name, each in brokers.items()}
            for number in range(options.rounds + 1):
                for batches, size in SHAPES:
                    for form, broker in brokers.items():
                        count = REQUESTS[size]
                        before = cpu_us(broker.pid)
                        clients[form].produce(batches, size, count)
                        used = (cpu_us(broker.pid) - before) / count
                        if number:  # the first round warms up
                            figures.setdefault(((batches, size), form), []).append(used)
                print(f"round {number}", file=sys.stderr, flush=True)
        finally:
            for broker in brokers.values():
                broker.stop()
    print(f"Linux {platform.release()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print("| µs a request | pure | native | ratio |\n|---|---|---|---|")
    for shape in SHAPES:
        pure, native = figures[shape, "pure"], figures[shape, "native"]
        cells = [f"{median(x):.1f} ({min(x):.1f} to {max(x):.1f})" for x in (pure, native)]
        ratio = median(native) / median(pure)
        print(f"| {shape[0]} x {shape[1] >> 10} KiB | {cells[0]} | {cells[1]} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
