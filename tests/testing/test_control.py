"""The control port: its verbs as HTTP requests, permissions, and the messages about invalid requests."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import KafkaException

from kwire.server.http.messages import HttpRequest
from kwire.server.metadata.endpoint import Endpoint
from kwire.testing import DiskFault, Fault, Recorder
from kwire.testing.control import OPERATIONS, Control, ControlOperation, openapi
from kwire.testing.served import forget, tell
from kwire.testing.served_broker import ServedBroker
from kwire.testing.words import DISK_FAULT, FAULT, REQUESTS, Word, checked

from .clients import producer, send

TOKEN = "secret"


class Port:
    """Asks a control port without a socket."""

    def __init__(self, control: Control) -> None:
        self.control = control
        self.headers = {"authorization": f"Bearer {TOKEN}", "host": "127.0.0.1:7070"}

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """The status and the JSON value of an answer."""
        sent = b"" if body is None else json.dumps(body).encode()
        status, text = self.send(method, target, sent, **headers)
        return status, json.loads(text)

    def send(self, method: str, target: str, sent: bytes, **headers: str) -> tuple[int, str]:
        """The status and the text of an answer to a body of any bytes."""
        all_headers = self.headers | {
            name.replace("_", "-"): each for name, each in headers.items()
        }
        request = HttpRequest.of(
            method.encode(),
            target.encode(),
            [(n.encode(), v.encode()) for n, v in all_headers.items()],
            sent,
        )
        answer = asyncio.run(self.control.route(request))
        assert isinstance(answer.body, bytes)
        return answer.status, answer.body.decode()

    def done(self, method: str, target: str, body: Any = None) -> Any:
        """The answer to something that is possible."""
        status, value = self.ask(method, target, body)
        assert status in (200, 201), value
        return value


@pytest.fixture(scope="module")
def served() -> Iterator[Port]:
    broker = ServedBroker({"listeners": "PLAINTEXT://127.0.0.1:0"})
    control = Control(broker.start(), TOKEN)
    try:
        yield (port := Port(control))
        port.done("POST", "/v1/reset")  # the last test may leave rules that have matched nothing
    finally:
        control.close()
        broker.stop()


@pytest.fixture
def port(served: Port) -> Port:
    served.done("POST", "/v1/reset")
    return served


def bootstrap(port: Port) -> str:
    return str(port.done("GET", "/v1/health")["bootstrap_servers"])


def test_topic_is_created_described_and_deleted(port: Port) -> None:
    status, made = port.ask(
        "POST", "/v1/topics", {"name": "orders", "partitions": 2, "configs": {"retention.ms": 1000}}
    )
    assert (status, made["name"], len(made["partitions"])) == (201, "orders", 2)
    send(producer(bootstrap(port)), "orders")
    rows = port.done("GET", "/v1/topics/orders")["partitions"]
    assert sum(row["end_offset"] for row in rows) == 1
    assert port.done("GET", "/v1/topics") == {"topics": ["orders"]}
    assert port.done("DELETE", "/v1/topics/orders") == {"topics": []}


def test_fault_acts_on_a_stock_client_and_counts(port: Port) -> None:
    port.done("POST", "/v1/topics", {"name": "orders"})
    client = producer(bootstrap(port), retries=0)
    [rule] = port.done("POST", "/v1/faults", {"api": "Produce", "error": "INVALID_RECORD"})[
        "faults"
    ]
    with pytest.raises(KafkaException):
        send(client, "orders")
    assert port.done("GET", f"/v1/faults/{rule['id']}")["hits"] == 1
    assert port.done("DELETE", f"/v1/faults/{rule['id']}")["matched"] == 1
    send(client, "orders")
    assert port.done("GET", "/v1/faults") == {"faults": []}


def test_full_disk_is_told_by_health_until_the_broker_begins_anew(port: Port) -> None:
    port.done("POST", "/v1/topics", {"name": "orders"})
    port.done("POST", "/v1/faults", {"operation": "write", "path": "*.log", "error": "ENOSPC"})
    with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"):
        send(producer(bootstrap(port), retries=0), "orders")
    port.control.broker.wait_for(lambda: port.ask("GET", "/v1/health")[0] == 503)
    health = port.ask("GET", "/v1/health")[1]
    assert health["status"] == "failed"
    assert "all log directories have failed" in health["error"]
    assert port.done("POST", "/v1/reset")["status"] == "ready"


def test_clock_is_advanced_and_old_records_are_gone(port: Port) -> None:
    port.done("POST", "/v1/topics", {"name": "news", "configs": {"retention.ms": "60000"}})
    send(producer(bootstrap(port)), "news")
    port.done("POST", "/v1/clock/advance", {"duration": "1d", "keep_members": True})
    [row] = port.done("GET", "/v1/topics/news")["partitions"]
    assert row == {"partition": 0, "start_offset": 1, "end_offset": 1}


def test_clock_stands_still_jumps_and_runs_on(port: Port) -> None:
    frozen = port.done("POST", "/v1/clock/freeze")
    assert frozen["frozen"] is True
    jumped = port.done("POST", "/v1/clock/jump", {"duration": "-1h"})
    assert jumped == {"now_ms": frozen["now_ms"] - 3_600_000, "frozen": True}
    assert port.done("POST", "/v1/clock/resume")["frozen"] is False


def test_fenced_producer_cannot_go_on(port: Port) -> None:
    port.done("POST", "/v1/topics", {"name": "orders"})
    client = producer(bootstrap(port), transactional_id="checkout")
    client.init_transactions(10)
    client.begin_transaction()
    send(client, "orders")
    port.done("POST", "/v1/fence", {"transactional_id": "checkout"})
    with pytest.raises(KafkaException):
        client.commit_transaction(10)
    status, answer = port.ask("POST", "/v1/fence", {"group": "nobody"})
    assert (status, answer["error"]) == (400, "group 'nobody' has no members")


def test_examples_of_the_page_are_understood(port: Port) -> None:
    page = (Path(__file__).parents[2] / "docs" / "control.md").read_text()
    commands = re.findall(r"^\$ curl .*127\.0\.0\.1:\d+(/v1/\S+) -d '(.*)'$", page, re.MULTILINE)
    assert len(commands) == 3
    for path, body in commands:
        port.done("POST", path, json.loads(body))
    [rules] = re.findall(r"^```yaml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    added = port.done("POST", "/v1/faults", yaml.safe_load(rules))["faults"]
    assert len(added) == 3


def test_recording_has_the_requests_of_a_stock_client(port: Port) -> None:
    port.done("POST", "/v1/topics", {"name": "orders"})
    recording = port.done("POST", "/v1/recordings")["id"]
    send(producer(bootstrap(port), client_id="shop"), "orders")
    port.done("POST", f"/v1/recordings/{recording}/stop")
    path = f"/v1/recordings/{recording}"
    [exchange] = port.done("GET", f"{path}?api=Produce&topic=orders&partition=0")["exchanges"]
    assert exchange["clientId"] == "shop"
    assert port.done("GET", f"{path}?api=Produce&topic=payments")["exchanges"] == []
    assert port.done("DELETE", path)["recorded"] > 1
    assert port.done("GET", "/v1/recordings") == {"recordings": []}


def test_fork_holds_what_its_parent_held_and_is_commanded_alone(port: Port) -> None:
    port.done("POST", "/v1/topics", {"name": "orders", "configs": {"retention.ms": "60000"}})
    send(producer(bootstrap(port)), "orders")
    fork = port.done("POST", "/v1/fork")
    assert port.done("GET", "/v1/fork") == {"forks": [fork]}
    below = f"{fork['path']}/v1"
    send(producer(fork["bootstrap_servers"]), "orders")

    def end(path: str) -> tuple[int, int]:
        [row] = port.done("GET", f"{path}/topics/orders")["partitions"]
        return row["start_offset"], row["end_offset"]

    assert (end("/v1"), end(below)) == ((0, 1), (0, 2))
    port.done("POST", f"{below}/clock/advance", {"duration": "1d"})
    assert (end("/v1"), end(below)) == ((0, 1), (2, 2))
    assert port.ask("GET", f"{below}/clock", authorization="")[0] == 401
    port.done("DELETE", fork["path"])
    assert port.done("GET", "/v1/fork") == {"forks": []}
    assert port.ask("GET", f"{below}/clock")[0] == 404


def test_reset_leaves_nothing_but_the_address(port: Port) -> None:
    address = bootstrap(port)
    port.done("POST", "/v1/topics", {"name": "orders"})
    port.done("POST", "/v1/faults", {"api": "Produce", "close": True})
    port.done("POST", "/v1/recordings")
    port.done("POST", "/v1/clock/freeze")
    assert port.done("POST", "/v1/reset")["bootstrap_servers"] == address
    assert port.done("GET", "/v1/topics") == {"topics": []}
    assert port.done("GET", "/v1/faults") == {"faults": []}
    assert port.done("GET", "/v1/recordings") == {"recordings": []}
    assert port.done("GET", "/v1/clock")["frozen"] is False


@pytest.mark.parametrize(
    ("method", "target", "body", "status", "said"),
    [
        ("POST", "/v1/faults", {"api": "Prodce", "close": True}, 400, "unknown API 'Prodce'; did you mean 'Produce'?"),
        ("POST", "/v1/faults", {"api": "Fetch", "eror": "X"}, 400, "unknown word 'eror' in the rule; did you mean 'error'?"),
        ("POST", "/v1/faults", {"error": "NOT_LEADER"}, 400, "unknown error 'NOT_LEADER'; did you mean 'NOT_LEADER_OR_FOLLOWER'?"),
        ("POST", "/v1/faults", [{"close": True}, {"nth": "x"}], 400, "nth in rule 2 is a whole number or a list of them, not 'x'"),
        ("POST", "/v1/faults", {"operation": "wirte"}, 400, "unknown file operation 'wirte'; did you mean 'write'?"),
        ("POST", "/v1/faults", 7, 400, "the rule is a JSON object, not 7"),
        ("POST", "/v1/faults", {"faults": [], "x": 1}, 400, "'faults' must be the only key"),
        ("POST", "/v1/topics", {"name": "a/b"}, 409, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "/v1/topics", {"partitions": True}, 400, "partitions in the body is a whole number, not True"),
        ("POST", "/v1/clock/advance", {"duration": "-1s"}, 400, "time cannot be advanced by '-1s'"),
        ("POST", "/v1/clock/advance", {}, 400, "the body needs duration"),
        ("POST", "/v1/clock/advance", {"duration": "2 mins"}, 400, "not a duration: '2 mins'; did you mean 'min'?"),
        ("POST", "/v1/clock/jump", {"duration": "-100000d"}, 400, "time is from 1970 to 9999"),
        ("POST", "/v1/clock/freeze", {"fetch_wait": True}, 400, "unknown word 'fetch_wait' in the body; did you mean 'fetch_waits'?"),
        ("POST", "/v1/fence", {}, 400, "fence() needs a group or a transactional_id"),
        ("GET", "/v1/recordings/9", None, 404, "there is no recording 9 (recordings: none)"),
        ("DELETE", "/v1/fork/3", None, 404, "there is no fork 3 (forks: none)"),
        ("GET", "/v1/fork/3/v1/topics", None, 404, "there is no fork 3"),
        ("GET", "/v1/topics/x", None, 404, "there is no topic 'x'"),
        ("GET", "/v1/topic", None, 404, "there is nothing at /v1/topic; did you mean '/v1/topics'?"),
        ("PUT", "/v1/clock", None, 405, "/v1/clock is for GET, not PUT"),
    ],
)  # fmt: skip
def test_request_that_makes_no_sense_is_told_what_and_the_nearest_word(
    served: Port, method: str, target: str, body: Any, status: int, said: str
) -> None:
    found, answer = served.ask(method, target, body)
    assert found == status
    assert said in answer["error"]


#: JSON that may stand for any word of a body.
HOSTILE = (
    *("null", "true", "-1", "1e400", "-1e400", "NaN", "1.5", "1e308", f"1{'0' * 30}", "9" * 5_000),
    *("2147483648", "9223372036854775808", "[]", "[1]", "[null]", f"[{'9' * 5_000}]", "{}"),
    *('""', '"x"', '"\\ud800"', '"\\u0000"', f'"{"x" * 40_000}"', f'"{"9" * 5_000}s"', '"1e400s"'),
    *(
        '{"x": null}',
        '{"x": [1]}',
        '{"x": {"y": 1}}',
        '{"\\ud800": "1"}',
        f'{{"retention.ms": {"9" * 5_000}}}',
    ),
    *(f"{'[' * depth}{']' * depth}" for depth in (100, 400, 800, 900, 950, 990)),
    *("[" * 20_000, '{"a":' * 20_000),
)


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.body],
    ids=lambda each: f"{each.method} {each.path}",
)
def test_value_of_any_kind_is_accepted_or_refused_by_its_name(
    port: Port, operation: ControlOperation
) -> None:
    rules = [FAULT, DISK_FAULT] if operation.path == "/v1/faults" else [operation.body or {}]
    for words in rules:
        needed: dict[str, Any] = {"operation": "write", "delay": 1} if words is DISK_FAULT else {}
        if words is FAULT:
            needed = {"close": True}
        if operation.path == "/v1/clock/advance":
            needed = {"duration": 0}
        for name in words:
            for value in HOSTILE:
                given = {key: each for key, each in needed.items() if key != name}
                body = f'{json.dumps(given)[:-1]}{", " if given else ""}"{name}": {value}}}'
                status, answer = port.send(operation.method, operation.path, body.encode())
                assert status in (200, 201, 400, 409), (name, value[:60], answer)
                whole = any(each in answer for each in ("nested too deeply", "surrogates"))
                if status == 400 and not whole:
                    assert name in answer.lower(), (value[:60], answer)
                    assert len(answer) < 1_000 or len(value) > 1_000
                if status == 201 and operation.path == "/v1/faults":
                    port.done("DELETE", "/v1/faults")
    port.done("POST", "/v1/clock/resume")


@pytest.mark.parametrize(
    "operation",
    [each for each in OPERATIONS if each.query or "{" in each.path],
    ids=lambda each: f"{each.method} {each.path}",
)
def test_part_of_a_path_or_query_of_any_kind_is_accepted_or_refused(
    port: Port, operation: ControlOperation
) -> None:
    number = port.done("POST", "/v1/recordings")["id"]
    hostile = [
        "",
        "x",
        "9" * 5_000,
        "-1",
        "1.5",
        "%D9%A1",
        "%00",
        "%FF",
        "x" * 60_000,
        "9" * 30,
        "%ed%a0%80",
        "..",
    ]
    for value in hostile:
        if "{" in operation.path:
            path = re.sub(r"\{\w+\}", value, operation.path)
            assert port.send(operation.method, path, b"")[0] in (200, 400, 404, 405)
        for name in operation.query:
            target = f"{operation.path.replace('{recording}', str(number))}?{name}={value}"
            status, answer = port.send(operation.method, target, b"")
            assert status == 200 or (status == 400 and name in answer.lower()), target[:99]
    port.done("POST", "/v1/reset")


def test_rules_and_words_without_end_are_refused(port: Port) -> None:
    for body in (
        b"\xff",
        b'{"%s": 1}' % (b"k" * 100_000),
        b"[" + b'{"close":true},' * 2_000 + b"{}]",
    ):
        assert port.send("POST", "/v1/faults", body)[0] == 400
    assert port.send("GET", "/" + "x" * 60_000, b"")[0] == 404


def test_list_of_rules_with_a_wrong_one_adds_none(port: Port) -> None:
    assert port.ask("POST", "/v1/faults", [{"close": True}, {"api": "x"}])[0] == 400
    assert port.done("GET", "/v1/faults") == {"faults": []}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic secret"}, 401),
        ({"origin": "http://shop.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:7070"}, 200),
    ],
)
def test_only_who_has_the_token_and_is_no_page_of_another_site_may_ask(
    served: Port, headers: dict[str, str], status: int
) -> None:
    assert served.ask("GET", "/v1/clock", **headers)[0] == status


def test_health_needs_no_token_but_no_other_site_may_read_it(served: Port) -> None:
    assert served.ask("GET", "/v1/health", authorization="")[0] == 200
    assert served.ask("GET", "/v1/health", authorization="", origin="http://shop.example")[0] == 403


@pytest.mark.parametrize(("words", "kind"), [(FAULT, Fault), (DISK_FAULT, DiskFault)])
def test_words_of_a_rule_are_the_arguments_of_kwire_testing(
    words: dict[str, Word], kind: type[Any]
) -> None:
    arguments = {each.name for each in dataclasses.fields(kind) if each.init}
    assert set(words) == arguments - {"broker", "from_broker"}  # which are for clusters


def test_words_of_a_query_are_the_arguments_of_a_recorder() -> None:
    arguments = Recorder.requests.__code__.co_varnames[1 : Recorder.requests.__code__.co_argcount]
    keywords = Recorder.requests.__annotations__
    assert {*arguments, *keywords} - {"return"} == set(REQUESTS)


def test_description_has_every_operation() -> None:
    described = openapi()
    listed = {
        (method.upper(), path) for path, each in described["paths"].items() for method in each
    }
    assert listed == {(each.method, each.path) for each in OPERATIONS}
    assert set(described["components"]["schemas"]["Fault"]["properties"]) == set(FAULT)


def test_numbers_of_a_list_are_checked_one_by_one() -> None:
    assert checked({"nth": [1, 3]}, FAULT, "the rule") == {"nth": [1, 3]}
    with pytest.raises(ValueError, match="nth in the rule"):
        checked({"nth": [1, "2"]}, FAULT, "the rule")


@pytest.mark.e2e
def test_kwire_serve_is_commanded_by_kwire_faults(tmp_path: Path) -> None:
    kwire = [sys.executable, "-m", "kwire.server"]
    told = tmp_path / "control.json"
    options = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--control",
        "127.0.0.1:0",
        "--control-file",
        str(told),
    ]
    told.write_text("of a broker that was killed")
    (tmp_path / "rules.yaml").write_text("- api: Produce\n  error: INVALID_RECORD\n  nth: [1, 2]\n")
    server = subprocess.Popen(
        [*kwire, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("kwire ready 127.0.0.1:")
        assert told.stat().st_mode & 0o777 == 0o600
        place = json.loads(told.read_text())

        def faults(*words: str) -> subprocess.CompletedProcess[str]:
            command = [*kwire, "faults", "--control-file", str(told), "--output", "json", *words]
            return subprocess.run(
                command, capture_output=True, text=True, check=False, cwd=tmp_path
            )

        added = faults("rules.yaml")
        assert (
            json.loads(added.stdout)["rule"]
            == "fault(api='Produce', error='INVALID_RECORD', nth=[1, 2])"
        )
        (tmp_path / "rules.yaml").write_text("api: Prodce\nclose: true\n")
        refused = faults("rules.yaml")
        assert (refused.returncode, refused.stderr) == (
            1,
            "kwire: unknown API 'Prodce'; did you mean 'Produce'?\n",
        )
        assert faults("--clear").stdout == ""

        told_nothing = [*kwire, "faults", "--control", place["url"]]
        refused = subprocess.run(told_nothing, capture_output=True, text=True, check=False)
        assert refused.stderr == (
            "kwire: give the token of the control port with --control-file or KWIRE_CONTROL_TOKEN\n"
        )

        rebound = urllib.request.Request(
            f"{place['url']}/v1/health", headers={"Host": "shop.example"}
        )
        with pytest.raises(urllib.error.HTTPError, match="421"):
            urllib.request.urlopen(rebound, timeout=10)
    finally:
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=30)
    assert server.returncode == 0, log
    assert place["token"] not in log
    assert os.listdir(tmp_path) == ["rules.yaml"], "what is left: no data, no address, no token"


def test_file_with_the_address_is_there_only_while_a_broker_serves_it(tmp_path: Path) -> None:
    told = tmp_path / "control.json"
    endpoint = Endpoint("CONTROL", "127.0.0.1", 9)
    tell(endpoint, "first", "127.0.0.1:9", str(told))
    tell(endpoint, "second", "127.0.0.1:9", str(told))
    forget(str(told), "first")
    assert json.loads(told.read_text())["token"] == "second"
    forget(str(told), "second")
    forget(str(told), "second")
    assert not told.exists()


def test_data_in_a_directory_of_ones_own_are_kept_and_never_emptied(tmp_path: Path) -> None:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    for expected in ({"topics": []}, {"topics": ["orders"]}):
        broker = ServedBroker(settings).start()
        port = Port(Control(broker, TOKEN))
        try:
            assert port.done("GET", "/v1/topics") == expected
            port.ask("POST", "/v1/topics", {"name": "orders"})
            status, answer = port.ask("POST", "/v1/reset")
            assert (status, "only a broker with temporary data" in answer["error"]) == (409, True)
        finally:
            port.control.close()
            broker.stop()
    assert (tmp_path / "orders-0").is_dir()
