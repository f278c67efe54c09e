"""`control.md`: the control port of `kwire serve --control`, derived from the table of its operations."""

from __future__ import annotations

from kwire.testing import words
from kwire.testing.control import OPERATIONS
from kwire.testing.words import KINDS, Word

INTRO = """# A broker that a test commands, in any language

`kwire serve --control` runs a broker for tests with an HTTP port by which a test commands its time and its failures and records what
clients ask. Tests in Python need no port: they have the same verbs as [fixtures and classes](testing.md).

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

Such a broker differs from a server as the brokers of [kwire.testing](testing.md) do. Without `--data-dir` or `log.dirs` its data are in a temporary
directory, which goes when it stops. It keeps its metadata itself; `--control` and ZooKeeper exclude each other.

[`compat/testing/`](../compat/testing/README.md) has a test that uses the port in each of Java (JUnit 5), Go and Node.

## Who may ask

The port is off unless `--control` is given, and `--control 127.0.0.1:0` can be reached from this machine only. Every request but those for
health and the description needs the token, as `Authorization: Bearer TOKEN`. It is made anew at each start and written to the log, or with `--control-file` to
that file, which only the same user can read. With the variable `KWIRE_CONTROL_TOKEN`, it is the one given there, and in no log.
Requests from pages of other sites are refused (by `Origin` and `Sec-Fetch-Site`), and so are those that call the port by a name that is not its own
(by `Host`; `kwire.http.hosts` adds names), so no page that is open in a browser can use it, not even by DNS rebinding.

## Rules in a file

`kwire faults rules.yaml --control-file control.json` adds rules, and without a file lists them with how often they have acted; `--clear` removes all of them first. Instead of
`--control-file`, there are `--control URL` or the variable `KWIRE_CONTROL`, and `KWIRE_CONTROL_TOKEN`.

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
An error is a JSON object whose `error` says in words what is wrong, with the nearest word that is known; if Kafka refused, `code` has the name of its
error. The status is 400 for a request that makes no sense, 401 without the token, 403 for another site, 404 for what there is not, 409 for what cannot be done
as things are, and 504 if the broker has not answered in time. `GET /v1/openapi.json` describes all of this in OpenAPI 3.1.

Where a server would end, as when all log directories have failed, this broker goes on answering, with errors; `/v1/health` says 503 and why, until `/v1/reset`.

Exchanges of a recording have the fields that [testing.md](testing.md) lists.
"""

FORKS = """
A fork is a broker in the same process, with the topics, records, groups, offsets, transactions and users that its parent had, on a port of its own: one prepared state for
many tests. It is commanded like its parent, by the same requests below its path: `POST /v1/fork` answers `{"id": 1, "bootstrap_servers":
"127.0.0.1:40211", "path": "/v1/fork/1"}`, and `POST /v1/fork/1/v1/clock/advance` lets time pass in it alone. It stops with its parent.
"""

FAULTS = """
## The words of a rule

They are the arguments of `kafka.fault` and `kafka.disk_fault`, with the same meaning: see [testing.md](testing.md). A rule with `operation` is one for the disk.
The body is a rule or a list of rules.
"""


def control_page() -> str:
    """The page."""
    lines = [INTRO, "| request | | words |", "| --- | --- | --- |"]
    for each in OPERATIONS:
        names = list(each.body or {}) if each.checks_body else ["those of rules, below"]
        said = ", ".join(f"`{name}`" if each.checks_body else name for name in names)
        if each.query:
            said = "in the query: " + ", ".join(f"`{name}`" for name in each.query)
        lines.append(f"| `{each.method} {each.path}` | {each.summary} | {said} |")
    lines.append(RULES)
    lines += ["Of a topic:\n", *_table(words.TOPIC)]
    lines += ["To advance the time, or to let the wall clock jump:\n", *_table(words.ADVANCE)]
    lines += ["To freeze the time:\n", *_table(words.FREEZE)]
    lines += ["To fence, one of both:\n", *_table(words.FENCE)]
    lines += [FORKS, FAULTS]
    lines += [*_table(words.FAULT), "Of a rule for the disk:\n", *_table(words.DISK_FAULT)]
    return "\n".join(lines)


def _table(given: dict[str, Word]) -> list[str]:
    rows = [f"| `{name}` | {KINDS[word.kind][0]} | {word.text} |" for name, word in given.items()]
    return ["| word | is | |", "| --- | --- | --- |", *rows, ""]
