"""The command `kwire`: finds the command to run and imports only its module."""

from __future__ import annotations

if __name__ == "__main__":
    from . import entry  # first, because it decides what Ctrl-C does during the other imports

import os
import sys
from argparse import Action, ArgumentParser, HelpFormatter
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from .arguments import Parser, shown

#: Command -> (module of cli/, description in `kwire --help`).
COMMANDS = {
    "serve": ("serve", "run a broker"),
    "topics": ("topics", "list, describe, create, change and delete topics"),
    "produce": ("produce", "send lines of standard input or a file as records"),
    "consume": ("consume", "print records"),
    "groups": ("groups", "list, describe, reset and delete consumer groups and share groups"),
    "explain": (
        "explain",
        "explain why a record is invisible, or what a group or transaction is waiting for",
    ),
    "top": ("top", "show live figures of brokers, topics, groups, requests and connections"),
    "configs": (
        "configs",
        "describe and change configs of topics, brokers, groups and client metrics",
    ),
    "transactions": (
        "transactions",
        "list, describe and abort transactions, and find hanging ones",
    ),
    "reassign": ("reassign", "move partitions to other brokers"),
    "acls": ("acls", "list, add and remove access control lists"),
    "quotas": ("quotas", "list and change the quotas of users, clients and addresses"),
    "users": ("users", "list, add and delete users who log in with SCRAM"),
    "faults": (
        "faults",
        "make a broker that was started with --control fail on purpose, for tests",
    ),
    "compare": (
        "compare",
        "send recorded requests to two brokers and show how their replies differ",
    ),
    "dump-log": ("dump_log", "print the batches and records of segments and indexes"),
    "cluster": (
        "cluster",
        "run several brokers on this machine, for tests; describe a cluster and its health",
    ),
    "zookeeper": ("zookeeper", "serve the embedded store to ZooKeeper's clients, for tests"),
    "pipeline": ("pipeline", "archive, replay, aggregate and audit topics with Spark"),
    "completion": (
        "completion",
        "print a script that completes kwire's commands and options in a shell",
    ),
    "coordination": ("coordination", "export or import cluster metadata"),
}

#: The options before a command.
OWN_OPTIONS = ("-h", "--help", "--version")


class PrintVersion(Action):
    """Looks up the version only on request, because that takes longer than the rest of the parser."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("kwire")
        except PackageNotFoundError:
            number = "(not installed)"
        from .event_loop import said_at_start

        sys.stdout.write(f"kwire {number} ({said_at_start()})\n")
        parser.exit()


class Formatter(HelpFormatter):
    """Determines the terminal's width without `shutil`, which would import two compression libraries."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


def columns() -> int:
    """The width of the terminal. Source: shutil.get_terminal_size."""
    try:
        given = int(os.environ["COLUMNS"])
    except (KeyError, ValueError):
        given = 0
    if given <= 0:
        try:
            given = os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        except (AttributeError, ValueError, OSError):
            given = 0
    return given or 80


def make_parser(chosen: str | None, *, alone: bool = False) -> ArgumentParser:
    """The parser of all commands, with the arguments of only the chosen one: importing all would slow down each start.

    Shape: the parser knows no other command if the chosen one is `alone`.
    """
    parser = Parser(
        prog="kwire",
        description="A broker that speaks Apache Kafka's protocol.",
        formatter_class=Formatter,
    )
    parser.add_argument(
        "--version", action=PrintVersion, nargs=0, help="print the version and exit"
    )
    # With `prog`, argparse does not format the usage to derive it.
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, prog=parser.prog
    )
    for name, (module, summary) in COMMANDS.items():
        if alone and name != chosen:
            continue
        command = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            formatter_class=Formatter,
        )
        if name == chosen:
            room = import_module(f".cli.{module}", __package__)
            room.add_arguments(command)
            command.set_defaults(
                run=room.run, parser=command, commands=COMMANDS, make_parser=make_parser
            )
    return parser


def main(argv: Sequence[str] | None = None, begin: Callable[[], object] = lambda: None) -> int:
    """Run one command and return its exit code: 0 success, 1 failure, 2 wrong usage, 130 Ctrl-C.

    Shape: `begin` is called when the command is known, just before it runs.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["pipeline"]:
        from .cli.pipeline import main as pipeline

        begin()
        return pipeline(arguments[1:])
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    if chosen is not None and arguments[0].startswith("-") and arguments[0] not in OWN_OPTIONS:
        # argparse would take the option's value for the command.
        make_parser(None).error(
            f"{shown(arguments[0])} comes before the command; write kwire COMMAND [OPTION ...]"
        )
    if chosen is not None and arguments[0] == chosen:
        from .cli.kafka_words import in_order

        arguments = in_order(arguments)
    alone = chosen in COMMANDS and arguments[0] == chosen
    options, unknown = make_parser(chosen, alone=alone).parse_known_args(arguments)
    last = getattr(options, "optional_last", None)
    if last and len(unknown) == 1 and not unknown[0].startswith("-") and not getattr(options, last):
        # argparse does not accept an optional argument after an option.
        setattr(options, last, unknown.pop())
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        begin()
        code: int = options.run(options)
    except KeyboardInterrupt as stopped:
        return getattr(stopped, "exit_code", 130)
    return code


def protect_children() -> None:
    """Keep Python processes that descend from this one from importing modules of the working directory.

    With `-m` and `-c`, Python searches that directory first: a clone has a folder `kwire/` without the installed
    `kwire.pipeline`, and users have their own modules. This affects the brokers of `kwire cluster`, worker processes of
    multiprocessing, and, through Java, Spark's Python workers. All of them inherit the environment.
    """
    os.environ["PYTHONSAFEPATH"] = "1"
    if __package__ == "server":
        # Run from a checkout: this code itself was found in the working directory.
        root, found = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = f"{root}{os.pathsep}{found}" if found else root


def command() -> int:
    """The entry point in the scripts of checkouts that were installed before there was `entry`."""
    code: int = import_module(".entry", __package__).command()
    return code


if __name__ == "__main__":
    sys.exit(entry.command())
