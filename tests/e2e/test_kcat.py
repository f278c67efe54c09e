"""kcat against a whole broker, as one uses it in a shell."""

from __future__ import annotations

import json
import shutil
import subprocess
import time

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ..support.broker_process import BrokerProcess
from ..support.kafka import refuse_or_skip

pytestmark = pytest.mark.e2e


@pytest.fixture(autouse=True)
def _needs_kcat() -> None:
    if shutil.which("kcat") is None:
        refuse_or_skip("needs kcat")


def cell(feature: str) -> pytest.MarkDecorator:
    """Return the marker of this client's row."""
    return pytest.mark.compat("kcat", feature)


def kcat(broker: BrokerProcess, *arguments: str, text: str = "", status: int = 0) -> str:
    """Run kcat and return its output. Errors: fails on another exit status."""
    try:
        ended = subprocess.run(
            ["kcat", "-b", broker.bootstrap, *arguments],
            input=text,
            capture_output=True,
            text=True,
            timeout=40,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        # The amount of output distinguishes a consumer that waits for records from one that got none.
        shown = (late.stdout or b"").splitlines()
        pytest.fail(f"{late}; {len(shown)} lines came, the last: {shown[-1:]}\n{broker.log_tail()}")
    assert ended.returncode == status, ended.stderr
    return ended.stdout + (ended.stderr if status else "")


@cell("metadata")
def test_metadata_lists_broker_and_topic(broker: BrokerProcess, name: str) -> None:
    """As JSON, after the topic was made by writing to it."""
    kcat(broker, "-P", "-t", name, text="x\n")
    shown = json.loads(kcat(broker, "-L", "-J", "-t", name))
    assert [entry["name"] for entry in shown["brokers"]] == [broker.bootstrap]
    assert [entry["partition"] for entry in shown["topics"][0]["partitions"]] == [0]


@cell("produce and consume")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_lines_come_back_in_order(broker: BrokerProcess, name: str, codec: str, acks: str) -> None:
    """Every codec with every kind of acknowledgement."""
    lines = [f"key{number}:value {number}" for number in range(300)]
    # Without acknowledgements, records sent before a new topic has its leader are not repeated.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 1)])[name].result(30)
    settings = ("-z", codec, "-X", f"topic.request.required.acks={acks}")
    kcat(broker, "-P", "-t", name, "-K:", *settings, text="\n".join(lines) + "\n")
    shown = kcat(broker, "-C", "-t", name, "-c300", "-q", "-f", "%k:%s\\n")
    assert shown.splitlines() == lines


@cell("offsets and times")
def test_offset_queries_find_the_record(broker: BrokerProcess, name: str) -> None:
    """From an offset, from the end backwards, and by time."""
    kcat(broker, "-P", "-t", name, text="0\n1\n2\n3\n4\n")
    time.sleep(0.05)
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    kcat(broker, "-P", "-t", name, text="5\n6\n")

    def shown(offset: str) -> list[str]:
        return kcat(broker, "-C", "-t", name, "-p0", "-e", "-q", "-o", offset).split()

    assert shown("3") == ["3", "4", "5", "6"]
    assert shown("-2") == ["5", "6"]
    assert shown(f"s@{between_ms}") == ["5", "6"]
    assert kcat(broker, "-Q", "-t", f"{name}:0:{between_ms}").split() == [
        name,
        "[0]",
        "offset",
        "5",
    ]


@cell("headers")
def test_headers_come_back_as_they_were_given(broker: BrokerProcess, name: str) -> None:
    """Repeated names and a header without value."""
    kcat(broker, "-P", "-t", name, "-H", "a=1", "-H", "a=2", "-H", "none", text="x\n")
    assert kcat(broker, "-C", "-t", name, "-e", "-q", "-f", "%h") == "a=1,a=2,none=NULL"


@cell("groups")
def test_group_reads_on_where_it_committed(broker: BrokerProcess, name: str) -> None:
    """The balanced consumer (-G) with automatic commits."""
    kcat(broker, "-P", "-t", name, text="0\n1\n2\n3\n")
    settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-q")
    assert kcat(broker, *settings, "-c2", "-G", name, name).split() == ["0", "1"]
    assert kcat(broker, *settings, "-c2", "-G", name, name).split() == ["2", "3"]


@cell("errors")
def test_unknown_topic_is_an_error_for_a_reader(broker: BrokerProcess, name: str) -> None:
    """A plain reader does not create topics."""
    said = kcat(broker, "-C", "-t", name, "-e", "-X", "allow.auto.create.topics=false", status=1)
    assert "Unknown topic or partition" in said
