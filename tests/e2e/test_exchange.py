"""kcat, kafka-python, confluent-kafka and aiokafka read, byte for byte, what each of them wrote."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import REPOSITORY, BrokerProcess
from ..support.kafka import refuse_or_skip

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLIENTS = ("aiokafka", "confluent-kafka", "kafka-python", "kcat")
CODECS = 5


def run_client(client: str, *arguments: str) -> str:
    """Run one client's side in a separate process and return its output."""
    script = REPOSITORY / "compat" / client / "client.py"
    ended = subprocess.run(
        [sys.executable, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, f"{client} {arguments}: {ended.stderr[-1500:]}"
    return ended.stdout


@pytest.fixture(scope="module")
def written(broker: BrokerProcess, long_form: bool) -> int:
    """Let every client write its topic once; give the number of records in each."""
    if shutil.which("kcat") is None:
        refuse_or_skip("needs kcat")
    count = 100_000 if long_form else 10_000
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    topics = [
        NewTopic(f"exchange-{client}", CODECS, 1, config={"retention.ms": "-1"})
        for client in CLIENTS
    ]
    for future in admin.create_topics(topics).values():
        future.result(30)
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(
                run_client, client, "produce", broker.bootstrap, f"exchange-{client}", str(count)
            )
            for client in CLIENTS
        ]
        for job in jobs:
            job.result()
    return count


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=pytest.mark.compat(name, "exchange")) for name in CLIENTS]
)
def test_reader_finds_every_record_of_every_writer(
    broker: BrokerProcess, written: int, reader: str
) -> None:
    """All codecs, sizes, null and empty keys and values, null, empty and repeated headers."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(
                *(run_client, reader, "consume", broker.bootstrap),
                *(f"exchange-{writer}", str(written), writer),
            )
            for writer in CLIENTS
        ]
        # A client that misses a record, or finds another one, ends with an error, which result() raises.
        said = [job.result().strip() for job in jobs]
    print("\n".join(said))
    assert [json.loads(line)["topic"] for line in said] == [f"exchange-{name}" for name in CLIENTS]
