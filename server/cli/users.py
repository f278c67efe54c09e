"""`kwire users`: the users that can log in with SCRAM (KIP-554).

Nobody can log in at a cluster without users, so users can also be added without a broker: in the data directory of a
stopped broker, or in ZooKeeper.
"""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kwire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kwire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

from ..client.brokers import Brokers
from ..security.sasl.scram_numbers import TYPES
from .brokers import check, refusals, with_brokers
from .client import CommandError, add_bootstrap
from .output import add_output, failure, show_rows
from .stores import add_broker_settings

if TYPE_CHECKING:
    from ..coordination.cluster import ClusterStore

MECHANISMS = tuple(TYPES)
ITERATIONS = 4096


class Row(NamedTuple):
    """One credential of a user."""

    user: str
    mechanism: str
    iterations: int


def add_arguments(parser: ArgumentParser) -> None:
    """The verbs of `kwire users` and their options."""
    add_bootstrap(parser)
    add_output(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--data-dir",
        metavar="DIR",
        help="instead of asking a broker, use this data directory; its broker must be stopped",
    )
    where.add_argument(
        "--zookeeper",
        metavar="HOSTS",
        help="instead of asking a broker, use this ZooKeeper ensemble, as host:port,.../chroot",
    )
    add_broker_settings(parser, "for the login and TLS at ZooKeeper")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    verbs.add_parser("list", help="list users who can log in with SCRAM")
    verb = verbs.add_parser("add", help="set the password of a user, adding the user if needed")
    verb.add_argument("user", metavar="USER", type=user_name)
    add_mechanism(verb)
    verb.add_argument(
        "--iterations",
        metavar="N",
        type=iterations,
        default=ITERATIONS,
        help=f"number of hash iterations that each login costs the client, 4096 to 16384 (default {ITERATIONS})",
    )
    verb.add_argument(
        "--password-file",
        metavar="FILE",
        help="file whose first line is the password; - for standard input (default: ask for it)",
    )
    verb = verbs.add_parser("delete", help="delete the credentials of a user")
    verb.add_argument("user", metavar="USER", type=user_name)
    add_mechanism(verb)


def add_mechanism(parser: ArgumentParser) -> None:
    """Add the option for the mechanism."""
    parser.add_argument(
        "--mechanism",
        choices=MECHANISMS,
        action="append",
        help="mechanism of the credential; repeatable (default: both)",
    )


def user_name(text: str) -> str:
    """A name that is valid in SCRAM. Errors: ArgumentTypeError."""
    if not text or not all("\x01" <= letter <= "\x7f" for letter in text):
        raise ArgumentTypeError("the name of a SCRAM user has ASCII letters only, and at least one")
    return text


def iterations(text: str) -> int:
    """A number of iterations that brokers accept. Errors: ArgumentTypeError."""
    from ..security.sasl.scram_numbers import MAX_ITERATIONS, MIN_ITERATIONS

    if not text.isdigit() or not MIN_ITERATIONS <= int(text) <= MAX_ITERATIONS:
        raise ArgumentTypeError(
            f"{text!r} is not a number from {MIN_ITERATIONS} to {MAX_ITERATIONS}"
        )
    return int(text)


def run(options: Namespace) -> int:
    """Run the verb."""
    if (options.config or options.overrides) and options.zookeeper is None:
        print("kwire: --config and -o need --zookeeper", file=sys.stderr)
        return 2
    if options.verb == "add":
        try:
            options.password = password(options)
        except CommandError as error:
            print(f"kwire: {error}", file=sys.stderr)
            return 1
    if options.data_dir is None and options.zookeeper is None:
        verb = {"list": list_users, "add": add_user, "delete": delete_user}[options.verb]
        return with_brokers(verb, options)
    verb_offline = {"list": list_offline, "add": add_offline, "delete": delete_offline}
    return in_store(verb_offline[options.verb], options)


def mechanisms(options: Namespace) -> list[str]:
    """The selected mechanisms."""
    return options.mechanism or list(MECHANISMS)


def password(options: Namespace) -> str:
    """The new password, from a prompt, a file or standard input; never from the command line.

    Errors: CommandError.
    """
    path = options.password_file
    if path is None and sys.stdin.isatty():
        from getpass import getpass

        try:
            text = getpass(f"Password of {options.user}: ")
            again = getpass("Again: ")
        except EOFError:
            print(file=sys.stderr)  # behind the prompt
            raise CommandError("no password was given") from None
        if text != again:
            raise CommandError("the passwords differ")
    elif path is None or path == "-":
        text = sys.stdin.readline().rstrip("\r\n")
    else:
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(
                failure(error) if isinstance(error, OSError) else f"{path}: not a text file"
            ) from None
        text = lines[0] if lines else ""
    if not text:
        raise CommandError("the password is empty")
    return text


def show(options: Namespace, rows: list[Row]) -> int:
    """Print credentials."""
    if rows:
        show_rows(options, ["user", "mechanism", "iterations"], sorted(rows))
    else:
        print("kwire: no users", file=sys.stderr)
    return 0


# -- by way of a broker


def list_users(brokers: Brokers, options: Namespace) -> int:
    """Print users."""
    response = brokers.ask(DescribeUserScramCredentialsRequest(users=None))
    check(response.error_code, response.error_message)
    names = dict(enumerate(MECHANISMS, 1))
    return show(
        options,
        [
            Row(row.user, names.get(info.mechanism, str(info.mechanism)), info.iterations)
            for row in response.results
            for info in row.credential_infos
        ],
    )


def add_user(brokers: Brokers, options: Namespace) -> int:
    """Set a password."""
    from ..security.sasl.scram import new_salt, salted_password
    from ..security.sasl.scram_numbers import TYPES

    rows = []
    for mechanism in mechanisms(options):
        salt = new_salt()
        salted = salted_password(mechanism, options.password, salt, options.iterations)
        rows.append(
            ScramCredentialUpsertion(
                name=options.user,
                mechanism=TYPES[mechanism],
                iterations=options.iterations,
                salt=salt,
                salted_password=salted,
            )
        )
    return alter(
        brokers, [AlterUserScramCredentialsRequest(deletions=[], upsertions=[row]) for row in rows]
    )


def delete_user(brokers: Brokers, options: Namespace) -> int:
    """Delete credentials; without --mechanism, all of the user's."""
    from ..security.sasl.scram_numbers import TYPES

    numbers = [TYPES[name] for name in options.mechanism or ()]
    if not numbers:
        request = DescribeUserScramCredentialsRequest(users=[UserName(name=options.user)])
        response = brokers.ask(request)
        check(response.error_code, response.error_message)
        (row,) = response.results
        check(row.error_code, row.error_message, options.user)
        numbers = [info.mechanism for info in row.credential_infos]
    rows = [ScramCredentialDeletion(name=options.user, mechanism=number) for number in numbers]
    return alter(
        brokers, [AlterUserScramCredentialsRequest(deletions=[row], upsertions=[]) for row in rows]
    )


def alter(brokers: Brokers, requests: Iterable[AlterUserScramCredentialsRequest]) -> int:
    """Make the controller change credentials; returns the exit code. Errors: Unavailable.

    Shape: a request has one row, because KRaft's controllers refuse two rows for one user.
    """
    codes = [refusals(brokers.ask_controller(each).results, "user") for each in requests]
    return max(codes, default=0)


# -- in a store, without a broker


def in_store(
    verb: Callable[[ClusterStore, Namespace], Coroutine[Any, Any, int]], options: Namespace
) -> int:
    """Run a verb on the store that the options name."""
    import logging

    from ..clock import SystemClock
    from ..coordination.cluster import ClusterStore
    from ..coordination.store import StoreError
    from .stores import NoStore, open_store

    adds = options.verb == "add"
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the StoreError says enough

    async def work() -> int:
        store = await open_store(options, must_exist=not adds)
        try:
            cluster = ClusterStore(store, SystemClock())
            await cluster.ensure_paths()
            return await verb(cluster, options)
        finally:
            await store.close()

    try:
        # The first user is often added before the first start of the broker.
        if options.data_dir is not None and adds:
            Path(options.data_dir).mkdir(parents=True, exist_ok=True)
        return asyncio.run(work())
    except (CommandError, NoStore, StoreError, OSError, ValueError) as error:
        print(f"kwire: {failure(error)}", file=sys.stderr)
        return 1


async def list_offline(cluster: ClusterStore, options: Namespace) -> int:
    """Print users."""
    from ..coordination.paths import desanitize
    from ..metadata.image import DEFAULT_ENTITY, USERS
    from ..security.sasl.scram import ScramCredential

    rows = []
    names = [
        name
        for kind, name in await cluster.config_entities()
        if kind == USERS and "/" not in name and name != DEFAULT_ENTITY
    ]
    for (_, name), config in (await cluster.configs([(USERS, name) for name in names])).items():
        rows += [
            Row(desanitize(name), mechanism, ScramCredential.parse(config[mechanism]).iterations)
            for mechanism in MECHANISMS
            if mechanism in config
        ]
    return show(options, rows)


async def add_offline(cluster: ClusterStore, options: Namespace) -> int:
    """Set a password."""
    from ..coordination.paths import sanitize
    from ..metadata.image import USERS
    from ..security.sasl.scram import ScramCredential, new_salt, salted_password

    made = {}
    for mechanism in mechanisms(options):
        salt = new_salt()
        salted = salted_password(mechanism, options.password, salt, options.iterations)
        made[mechanism] = ScramCredential.of(mechanism, salt, salted, options.iterations).text()
    await cluster.alter_config(USERS, sanitize(options.user), lambda before: {**before, **made})
    return 0


async def delete_offline(cluster: ClusterStore, options: Namespace) -> int:
    """Delete credentials."""
    from ..coordination.paths import sanitize
    from ..metadata.image import USERS

    deleted = mechanisms(options)

    def change(before: Mapping[str, str]) -> Mapping[str, str]:
        if not any(name in before for name in deleted):
            raise CommandError(f"{options.user}: there is no such credential")
        return {name: text for name, text in before.items() if name not in deleted}

    await cluster.alter_config(USERS, sanitize(options.user), change)
    return 0
