"""A broker reports by HTTP whether it serves clients, from the first moment of its start to the last of its stop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from server.broker import Broker
from server.composition.http import health_routes
from server.config import BrokerConfig, ConfigError
from server.http.messages import HttpRequest, HttpResponse

ROOT = Path(__file__).parents[2]
REQUEST = HttpRequest("GET", "/readyz", {}, {})


def broker_in(folder: Path, **config: str) -> Broker:
    settings = {"log.dirs": str(folder), "listeners": "PLAINTEXT://127.0.0.1:0", **config}
    return Broker(BrokerConfig(settings))


async def get(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_broker_is_ready_between_start_and_stop_only(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def main() -> None:
        broker = broker_in(tmp_path, **{"kwire.http.listener": "127.0.0.1:0"})
        seen.append(broker.not_ready)
        await broker.start()
        assert broker.http is not None
        port = broker.http.port
        assert (await get(port, "/readyz")) == (200, '{"status": "ready"}\n')
        assert (await get(port, "/v1/status/ready"))[0] == 200
        assert (await get(port, "/livez")) == (200, "ok\n")
        # The health check is the last part that a stop closes.
        asked: list[tuple[int, str]] = []

        async def ask() -> None:
            asked.append(await get(port, "/readyz"))
            asked.append(await get(port, "/livez"))

        broker._cleanup.push_async_callback(ask)
        await broker.stop()
        assert [status for status, _ in asked] == [503, 200]
        assert json.loads(asked[0][1]) == {
            "status": "not ready",
            "reason": "the broker is stopping",
        }
        with pytest.raises(ConnectionRefusedError):
            await get(port, "/livez")

    asyncio.run(main())
    assert seen == ["the store and the log directories are being opened"]


def test_broker_is_not_ready_while_it_opens_its_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[int, str]] = []

    async def main() -> None:
        broker = broker_in(tmp_path, **{"kwire.http.listener": "127.0.0.1:0"})

        async def open_logs(*_: object) -> None:
            assert broker.http is not None
            found.append(await get(broker.http.port, "/readyz"))
            raise OSError("enough")

        monkeypatch.setattr("server.composition.serving.open_logs", open_logs)
        with pytest.raises(OSError, match="enough"):
            await broker.start()
        await broker.stop()

    asyncio.run(main())
    assert found[0][0] == 503
    assert json.loads(found[0][1])["reason"].startswith("the logs are being read")


def test_without_an_address_nothing_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        broker = broker_in(tmp_path)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(broker.stop)
            await broker.start()
            assert broker.http is None

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("9644", "localhost:9644"),
        (":9644", ":9644"),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("[::1]:2", "[::1]:2"),
    ],
)
def test_port_alone_is_one_of_this_machine(text: str, expected: str) -> None:
    endpoint = BrokerConfig({"kwire.http.listener": text}).http_listener
    assert endpoint is not None
    assert endpoint.address == expected


@pytest.mark.parametrize(
    "text", ["here", "localhost:http", "localhost:99999", "http://localhost:1"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"kwire\.http\.listener"):
        BrokerConfig({"kwire.http.listener": text})


def test_reason_is_json() -> None:
    routes = health_routes(lambda: 'it "waits"')
    answer = routes["/readyz"](REQUEST)
    assert isinstance(answer, HttpResponse) and isinstance(answer.body, bytes)
    assert json.loads(answer.body) == {"status": "not ready", "reason": 'it "waits"'}


def test_broker_that_serves_no_http_loads_nothing_for_it(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from server.broker import Broker\n"
        "from server.config import BrokerConfig\n"
        "async def main():\n"
        "    broker = Broker(BrokerConfig({'log.dirs': sys.argv[1], 'listeners': 'A://127.0.0.1:0',\n"
        "        'listener.security.protocol.map': 'A:PLAINTEXT', 'inter.broker.listener.name': 'A'}))\n"
        "    await broker.start()\n"
        "    await broker.stop()\n"
        "asyncio.run(main())\n"
        "print(*sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "server.composition.serving" in loaded
    unwanted = ("h11", "prometheus_client", "http", "server.http", "server.metrics", "json.tool")
    assert not loaded & set(unwanted)
