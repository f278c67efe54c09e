"""`kwire faults`: rules that make a broker that was started with --control fail on purpose."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from ..client.words import reason
from .client import CommandError
from .output import add_output, show_rows

URL, TOKEN = "KWIRE_CONTROL", "KWIRE_CONTROL_TOKEN"
PATIENCE_MS = 30_000
NO_CONTROL = "this port does not speak HTTP; give the one of kwire serve --control"


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire faults`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="YAML or JSON: a rule, or a list of rules, with the arguments of kwire.testing's `fault` and `disk_fault`; "
        "- for standard input. Without FILE, the command lists the rules in force",
    )
    parser.add_argument(
        "--control",
        metavar="URL",
        help=f"address of the control port (default: the environment variable {URL})",
    )
    parser.add_argument(
        "--control-file",
        metavar="FILE",
        help=f"file written by `kwire serve --control-file`, with address and token; without it, the token is taken from {TOKEN}",
    )
    parser.add_argument("--clear", action="store_true", help="remove the rules in force first")
    add_output(parser)


def run(options: Namespace) -> int:
    """Add or list rules."""
    try:
        url, token = place(options)
        rules = read(options.file) if options.file is not None else None
        if options.clear:
            ask(url, token, "DELETE")
        if rules is not None:
            ask(url, token, "POST", rules)
        found = ask(url, token, "GET")["faults"]
    except CommandError as error:
        print(f"kwire: {error}", file=sys.stderr)
        return 1
    rows = [(each["id"], each["rule"], each["matched"], each["hits"]) for each in found]
    show_rows(options, ("id", "rule", "matched", "hits"), rows)
    return 0


def place(options: Namespace) -> tuple[str, str]:
    """The address of the control port, and its token. Errors: CommandError."""
    url, token = options.control or os.environ.get(URL, ""), os.environ.get(TOKEN, "")
    if options.control_file is not None:
        try:
            found = json.loads(Path(options.control_file).read_text(encoding="utf-8"))
            url, token = options.control or found["url"], found["token"]
        except OSError as error:
            raise CommandError(f"{options.control_file}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise CommandError(
                f"{options.control_file} is not a file of kwire serve --control-file"
            ) from None
    if not url:
        raise CommandError(
            f"give the address of the control port with --control, --control-file or {URL}"
        )
    return url if "://" in url else f"http://{url}", token


def read(file: str) -> Any:
    """The rules in a file. Errors: CommandError."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        rules = yaml.safe_load(text)
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CommandError(f"{file}: not a text file") from None
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = "" if where is None else f", line {where.line + 1}"
        said = getattr(error, "problem", None) or "not YAML"
        raise CommandError(f"{file}{line}: {said}") from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits; nested deeply
        raise CommandError(f"{file}: not YAML that can be read: {error}") from None
    if not isinstance(rules, dict | list):
        raise CommandError(f"{file}: neither a rule nor a list of rules")
    return rules


def ask(url: str, token: str, method: str, body: Any = None) -> Any:
    """Send the control port a request about faults. Errors: CommandError, with its message."""
    import http.client
    from http import HTTPStatus
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, Request, build_opener

    from ..deadline_http import Deadline

    try:
        data = None if body is None else json.dumps(body).encode()
    except TypeError:
        raise CommandError(
            "the rules have a value that JSON does not have, such as a date"
        ) from None
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        request = Request(f"{url.rstrip('/')}/v1/faults", data, headers, method=method)
        # Without a proxy, which would see the token.
        deadline = Deadline(lambda: int(time.monotonic() * 1000), PATIENCE_MS)
        with build_opener(ProxyHandler({}), *deadline.handlers()).open(request) as answer:
            return json.load(answer)
    except HTTPError as error:
        if error.code == HTTPStatus.UNAUTHORIZED and not token:
            raise CommandError(
                f"give the token of the control port with --control-file or {TOKEN}"
            ) from None
        said = error.read().decode("utf-8", "replace")
        try:
            said = json.loads(said)["error"]
        except (ValueError, KeyError, TypeError):
            said = f"{url} is not a control port ({error.code}: {said.strip()[:200]})"
        raise CommandError(said) from None
    except (ConnectionResetError, http.client.HTTPException):
        raise CommandError(f"{url}: {NO_CONTROL}") from None
    except (OSError, ValueError) as error:
        cause = getattr(error, "reason", None) or error
        said = reason(cause) if isinstance(cause, Exception) else cause
        raise CommandError(f"{url}: {said}") from None
