"""The entry point of the installed command `kwire`: what holds from its first moment to its last.

Whatever a command does, Ctrl-C leaves no traceback and ends it with status 130, and standard streams that are closed, full
or without a reader are reported in one line, or not at all. Importing this module already decides what Ctrl-C does, so only
the command imports it, before all others.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would import more than this module
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

INTERRUPTED = 130


def _leave(*_: object) -> None:
    """End at once: nothing has been begun, or all is done."""
    os._exit(INTERRUPTED)


def _on_interrupt(before: object, after: object) -> None:
    """Change what Ctrl-C does, unless a command has its own way, or whoever started it has Ctrl-C ignored."""
    if _signal.getsignal(_signal.SIGINT) == before:
        _signal.signal(_signal.SIGINT, after)


for _early in (_signal.default_int_handler, _signal.SIG_DFL):  # Python's own; that of the script
    _on_interrupt(_early, _leave)


def command() -> int:
    """Run the command of the process's arguments; returns its exit status."""
    from .streams import StreamFailed, give_up_output, install

    install()
    try:
        code = _run()
        if sys.stdout is not None:  # a broker has given it up
            sys.stdout.flush()
    except StreamFailed as failed:
        give_up_output()
        code = 0
        if not failed.is_broken_pipe:
            sys.stderr.write(f"kwire: {failed}\n")
            code = 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    _on_interrupt(_signal.default_int_handler, _leave)
    return code


def _run() -> int:
    from importlib import import_module

    # By name: `python -m` runs that module, which then imports this one.
    kwire: Any = import_module(".__main__", __package__)
    kwire.protect_children()
    try:
        code: int = kwire.main(begin=lambda: _on_interrupt(_leave, _signal.default_int_handler))
        return code
    except SystemExit as ended:  # argparse, after --help, --version and wrong usage
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
