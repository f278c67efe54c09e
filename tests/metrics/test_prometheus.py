"""A real Prometheus server scrapes a broker and answers a dashboard's query."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.http.test_health import get
from tests.metrics.scraped import Client, broker_in

PROMETHEUS = shutil.which("prometheus")
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: kafka-broker
    static_configs: [{{targets: ["127.0.0.1:{port}"], labels: {{env: test}}}}]
"""


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def ask(port: int, query: str) -> list[dict[str, object]]:
    """The result of an instant query; empty as long as the server does not answer."""
    try:
        status, body = await get(port, f"/api/v1/query?query={quote(query)}")
    except OSError:
        return []
    if status != 200:
        return []
    found: list[dict[str, object]] = json.loads(body)["data"]["result"]
    return found


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="needs prometheus, which Debian has as a package")
def test_prometheus_reads_every_sample(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_in(tmp_path / "broker")
        await broker.start()
        assert broker.http is not None and broker.rooms is not None
        assert await broker.rooms.services.topics.auto_create(["orders"]) == {}
        client = await Client.connect(broker)
        await client.produce("orders", 7)
        await client.close()
        config = tmp_path / "prometheus.yml"
        config.write_text(CONFIG.format(port=broker.http.port))
        port = free_port()
        assert PROMETHEUS is not None
        with (tmp_path / "log").open("wb") as log:
            server = subprocess.Popen(  # noqa: ASYNC220 - the broker may wait that long
                [
                    PROMETHEUS,
                    f"--config.file={config}",
                    f"--storage.tsdb.path={tmp_path / 'tsdb'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            async with asyncio.timeout(30):
                while not await ask(port, 'up{job="kafka-broker"} == 1'):
                    await asyncio.sleep(0.1)
            (found,) = await ask(
                port,
                'sum(kafka_server_brokertopicmetrics_messagesin_total{topic=~"orders",topic!="",env="test"})',
            )
            assert found["value"][1] == "7"  # type: ignore[index]
            quantiles = await ask(
                port, 'kafka_network_requestmetrics_totaltimems{request="Produce",quantile=~".+"}'
            )
            assert len(quantiles) == 6
            # Stored and sent samples are equal: nothing was dropped as a repetition or for its form.
            (lines,) = await ask(port, "scrape_samples_post_metric_relabeling")
            (stored,) = await ask(port, 'count({job="kafka-broker",__name__!~"up|scrape_.*"})')
            assert stored["value"][1] == lines["value"][1]  # type: ignore[index]
        finally:
            server.terminate()
            server.wait(10)
            await broker.stop()

    asyncio.run(main())
