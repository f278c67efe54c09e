"""Rearranges the words of Apache Kafka's command lines into the order of kwire's commands.

`--bootstrap-server X --create --topic t` becomes `--bootstrap X create t`. Options that only have a different name
(`--replication-factor`) are aliases in the commands' parsers instead.
"""

from __future__ import annotations

from collections.abc import Sequence

BOOTSTRAP = ("--bootstrap", "--bootstrap-server", "--bootstrap-servers", "--broker-list")
#: Other options of the command itself, which are also accepted after a verb.
OF_COMMAND = (
    "-X",
    "--command-property",
    "--consumer-property",
    "--producer-property",
    "--command-config",
    "--consumer.config",
    "--producer.config",
    "--data-dir",
    "--zookeeper",
    "--output",
)
#: The same for single commands; other commands have verb options with these names.
OF_ONE = {"users": ("--config", "-o", "--override"), "groups": ("--timeout", "--timeout-ms")}
#: Command -> the option of Kafka's tool for the argument here, if there is one.
NAMES = {
    "topics": "--topic",
    "produce": "--topic",
    "consume": "--topic",
    "groups": "--group",
    "acls": None,
    "quotas": None,
    "users": None,
    "configs": None,
    "transactions": None,
    "reassign": None,
}
#: Command -> options of Kafka's tool that are verbs here.
VERBS = {
    "topics": ("--list", "--describe", "--create", "--alter", "--delete"),
    "groups": (
        "--list",
        "--describe",
        "--delete",
        "--reset-offsets",
        "--delete-offsets",
        "--validate-regex",
    ),
    "acls": ("--list", "--add", "--remove"),
    "configs": ("--describe", "--alter"),
    "reassign": ("--generate", "--execute", "--verify", "--cancel", "--list"),
}


def in_order(words: Sequence[str]) -> list[str]:
    """Rearrange a command line that begins with a command: bootstrap, verb and names come first."""
    command, left = words[0], list(words[1:])
    if command not in NAMES:
        return [command, *left]
    own = (*OF_COMMAND, *OF_ONE.get(command, ()))
    bootstrap: list[str] = []
    of_command: list[str] = []
    verb: list[str] = []
    names: list[str] = []
    others: list[str] = []
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if command == "reassign" and option == "--broker-list":
            others.append(word)  # the new places of partitions
        elif option in (*BOOTSTRAP, NAMES[command]) and (equals or left):
            value = value if equals else left.pop(0)
            if option in BOOTSTRAP:
                bootstrap = [BOOTSTRAP[0], value]
            else:
                names.append(value)
        elif word in own and left:
            of_command += [word, left.pop(0)]
        elif option in own or option.startswith("-X"):
            of_command.append(word)
        elif option in VERBS.get(command, ()) and not verb:
            verb = [option.removeprefix("--")]
            others += [value] * bool(equals)
        else:
            others.append(word)
    if command in VERBS and not verb and others and not others[0].startswith("-"):
        verb = [others.pop(0)]
    if "--reset-offsets" in words and not {"--execute", "--export", "--dry-run"} & set(others):
        others.append("--dry-run")  # the default of Apache Kafka's tool
    return [command, *bootstrap, *of_command, *verb, *names, *others]
