"""`kwire completion`: shell completion of commands, verbs and options, generated from the parsers."""

from __future__ import annotations

from argparse import Action, ArgumentParser, Namespace, _SubParsersAction
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ..arguments import is_path

INSTALL = {
    "bash": "kwire completion bash > ~/.local/share/bash-completion/completions/kwire",
    "zsh": "kwire completion zsh > DIR/_kwire, DIR being one of $fpath",
    "fish": "kwire completion fish > ~/.config/fish/completions/kwire.fish",
}


class CompletionPlace(NamedTuple):
    """A command or verb, and the words that can follow it.

    Shape: `path` are the preceding words; `below` are verbs or commands with their help; `options` are options with
    their names, help and values; values are words, or "FILE", or None if nothing can be proposed.
    """

    path: tuple[str, ...]
    below: tuple[tuple[str, str], ...]
    options: tuple[tuple[tuple[str, ...], str, tuple[str, ...] | str | None], ...]


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `kwire completion`."""
    parser.add_argument(
        "shell",
        choices=tuple(INSTALL),
        help="; ".join(INSTALL.values()),
    )


def run(options: Namespace) -> int:
    """Print the script."""
    scripts = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
    print(scripts[options.shell](list(places(options.commands, options.make_parser))), end="")
    return 0


def places(
    commands: Mapping[str, tuple[str, str]], make_parser: Callable[[str], ArgumentParser]
) -> Iterator[CompletionPlace]:
    """Every command and verb. Shape: `commands` has the module and the description of each command."""
    yield CompletionPlace((), tuple((name, summary) for name, (_, summary) in commands.items()), ())
    for name in commands:
        if name == "pipeline":  # its options belong to its jobs, which need Spark
            continue
        top = make_parser(name)
        (chosen,) = (each for each in top._actions if isinstance(each, _SubParsersAction))
        yield from places_of((name,), chosen.choices[name])


def places_of(path: tuple[str, ...], parser: ArgumentParser) -> Iterator[CompletionPlace]:
    """A parser and those of its verbs."""
    verbs: dict[str, ArgumentParser] = {}
    below: list[tuple[str, str]] = []
    options = []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            verbs = dict(action.choices)
            helps = {each.dest: each.help or "" for each in action._choices_actions}
            below += [(name, helps.get(name, "")) for name in verbs]
        elif action.option_strings:
            options.append((tuple(action.option_strings), help_of(action), values_of(action)))
        elif action.choices:
            below += [(str(choice), "") for choice in action.choices]
    yield CompletionPlace(path, tuple(below), tuple(options))
    for name, verb in verbs.items():
        yield from places_of((*path, name), verb)


def help_of(action: Action) -> str:
    """The description of an option, in one line."""
    return (action.help or "").replace("%%", "%")


def values_of(action: Action) -> tuple[str, ...] | str | None:
    """The values of an option: words, FILE, or None for others; an empty tuple if it takes none."""
    if action.nargs == 0:
        return ()
    if action.choices:
        return tuple(map(str, action.choices))
    return "FILE" if is_path(action) else None


def bash_script(found: list[CompletionPlace]) -> str:
    """A script for bash."""

    def names(place: CompletionPlace) -> str:
        return " ".join(("kwire", *place.path))

    paths = "|".join(f'"{names(place)}"' for place in found if place.path)
    words, values, files = [], [], []
    for place in found:
        proposed = [name for name, _ in place.below]
        for options, _, value in place.options:
            proposed += options
            patterns = "|".join(f'"{names(place)} {option}"' for option in options)
            if value == "FILE":
                files.append(patterns)
            elif value:
                values.append(f'    {patterns}) words="{" ".join(value)}" ;;')
            elif value is None:
                values.append(f"    {patterns}) return ;;")
        words.append(f'      "{names(place)}") words="{" ".join(proposed)}" ;;')
    file_case = f'    {"|".join(files)}) COMPREPLY=($(compgen -f -- "$cur")); return ;;\n'
    return f"""# Completion of kwire; made by `kwire completion bash`.
_kwire() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" path=kwire words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {paths}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  COMPREPLY=()
  case "$path $prev" in
{file_case}{chr(10).join(values)}
  esac
  if [ -z "$words" ]; then
    case "$path" in
{chr(10).join(words)}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _kwire kwire
"""


def zsh_script(found: list[CompletionPlace]) -> str:
    """A script for zsh, which can run bash completions."""
    return (
        "#compdef kwire\n# Completion of kwire; made by `kwire completion zsh`.\n"
        "autoload -U +X bashcompinit && bashcompinit\n" + bash_script(found)
    )


def fish_script(found: list[CompletionPlace]) -> str:
    """A script for fish."""
    lines = ["# Completion of kwire; made by `kwire completion fish`.", "complete -c kwire -f"]
    for place in found:
        if place.path:
            seen = [f"__fish_seen_subcommand_from {word}" for word in place.path]
        else:
            seen = ["__fish_use_subcommand"]
        verbs = " ".join(name for name, _ in place.below)
        fresh = [*seen, f"not __fish_seen_subcommand_from {verbs}"] if verbs else seen
        for name, text in place.below:
            condition = "; and ".join(fresh if place.path else seen)
            lines.append(f"complete -c kwire -n {quoted(condition)} -a {name} -d {quoted(text)}")
        for options, text, value in place.options:
            flags = " ".join(
                f"-l {option[2:]}"
                if option.startswith("--")
                else f"-s {option[1:]}"
                if len(option) == 2
                else f"-o {option[1:]}"
                for option in options
            )
            takes = ""
            if value == "FILE":
                takes = " -r -F"
            elif value:
                takes = f" -x -a {quoted(' '.join(value))}"
            elif value is None:
                takes = " -x"
            condition = "; and ".join(seen)
            lines.append(
                f"complete -c kwire -n {quoted(condition)} {flags}{takes} -d {quoted(text)}"
            )
    return "\n".join(lines) + "\n"


def quoted(text: str) -> str:
    """A word quoted for fish."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
