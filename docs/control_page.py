"""`control.md`: the control port of `kwire serve --control`, derived from the table of its operations."""

from __future__ import annotations

from kwire.testing import words
from kwire.testing.control import OPERATIONS
from kwire.testing.words import KINDS, Word

INTRO = """# A test broker for any language

`kwire serve --control` runs a broker for tests with an HTTP control port. Through this port, a test in any language controls the
broker's time, injects failures, and records what clients send. Tests in Python do not need the port: they have the same functions
as [fixtures and classes](testing.md).

```console
$ kwire serve --listen 127.0.0.1:0 --control 127.0.0.1:0 --control-file control.json
kwire ready 127.0.0.1:39263
$ cat control.json
{"url": "http://127.0.0.1:42495", "token": "ikdUr_E9z2-4gx1QS50EI66YTO6AlDMa", "bootstrap_servers": "127.0.0.1:39263"}
$ TOKEN=$(jq -r .token control.json)
$ curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:42495/v1/topics -d '{"name": "orders", "partitions": 2}'
$ curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:42495/v1/faults -d '{"api": "Produce", "nth": 1, "error": "NOT_LEADER_OR_FOLLOWER"}'
$ curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:42495/v1/clock/advance -d '{"duration": "1w"}'
```

Such a broker differs from a server in the same way as the brokers of [kwire.testing](testing.md#settings). Without `--data-dir`
or `log.dirs`, its data is in a temporary directory, which is removed when it stops. Its metadata is in the embedded store;
`--control` cannot be combined with ZooKeeper.

[`compat/testing/`](../compat/testing/README.md) has tests that use the port in Java (JUnit 5), Go and Node.

## Access

The port is off unless you use `--control`. `--control 127.0.0.1:0` can be reached only from this machine.

Every request except those for health and the API description needs a token, as `Authorization: Bearer TOKEN`. The broker creates
a new token at each start and writes it to the log, or with `--control-file` to that file. Only the same user can read the file, and
it exists only while the broker can be controlled. To choose the token yourself, set the variable `KWIRE_CONTROL_TOKEN`; it is then
not logged.

The broker rejects requests from pages of other sites (by `Origin` and `Sec-Fetch-Site`) and requests that use a foreign host name
(by `Host`; `kwire.http.hosts` adds names). No page in a browser can therefore use the port, not even by DNS rebinding.

## Rules in a file

`kwire faults rules.yaml --control-file control.json` adds the rules of a file. Without a file, it lists the rules and how often
each has applied. `--clear` removes all rules first. Instead of `--control-file`, you can use `--control URL` or the variable
`KWIRE_CONTROL`, with `KWIRE_CONTROL_TOKEN`.

```yaml
- api: Produce
  topic: orders
  nth: [1, 2]
  error: NOT_LEADER_OR_FOLLOWER
- api: Fetch
  client_id: billing
  delay: 2s
- operation: fsync
  delay: 500ms
```

## Requests
"""

RULES = """
An error is a JSON object. Its `error` describes the problem and suggests the nearest known name; if Kafka returned an error,
`code` has its name. The status is one of these:

| status | meaning |
| --- | --- |
| 400 | the request is invalid |
| 401 | the token is missing or wrong |
| 403 | the request comes from another site |
| 404 | the object does not exist |
| 409 | the current state does not allow the request |
| 504 | the broker did not answer in time |

`GET /v1/openapi.json` describes the API in OpenAPI 3.1. [testing.md](testing.md) lists the fields of the exchanges in a
recording.

In situations in which a server would stop, for example when all log directories have failed, this broker keeps answering, with
errors. Until `/v1/reset`, `/v1/health` returns 503 and the reason.

The next tables list the parameters of requests.
"""

FORKS = """
## Forks

A fork is a broker in the same process, on its own port, with a copy of its parent's topics, records, groups, offsets,
transactions and users. Use it to run many tests on one prepared state. A fork accepts the same requests as its parent, below its
own path: `POST /v1/fork` returns `{"id": 1, "bootstrap_servers": "127.0.0.1:40211", "path": "/v1/fork/1"}`, and `POST
/v1/fork/1/v1/clock/advance` lets time pass only in the fork. It stops with its parent.
"""

FAULTS = """
## Parameters of a rule

The parameters of a rule are the arguments of `kafka.fault` and `kafka.disk_fault`, with the same meaning: see
[testing.md](testing.md). A rule with `operation` applies to the disk. The body of the request is a rule or a list of rules.
"""


def control_page() -> str:
    """The page."""
    lines = [INTRO, "| request | effect | parameters |", "| --- | --- | --- |"]
    for each in OPERATIONS:
        names = list(each.body or {}) if each.checks_body else ["those of rules, below"]
        said = ", ".join(f"`{name}`" if each.checks_body else name for name in names)
        if each.query:
            said = "in the query: " + ", ".join(f"`{name}`" for name in each.query)
        lines.append(f"| `{each.method} {each.path}` | {each.summary} | {said} |")
    lines.append(RULES)
    lines += ["To create a topic:\n", *_table(words.TOPIC)]
    lines += ["To advance the time, or to let the wall clock jump:\n", *_table(words.ADVANCE)]
    lines += ["To freeze the time:\n", *_table(words.FREEZE)]
    lines += ["To fence a producer or a group, one of these:\n", *_table(words.FENCE)]
    lines += [FORKS, FAULTS]
    lines += [*_table(words.FAULT), "A rule for the disk:\n", *_table(words.DISK_FAULT)]
    return "\n".join(lines)


def _table(given: dict[str, Word]) -> list[str]:
    rows = [f"| `{name}` | {KINDS[word.kind][0]} | {word.text} |" for name, word in given.items()]
    return ["| parameter | value | meaning |", "| --- | --- | --- |", *rows, ""]
