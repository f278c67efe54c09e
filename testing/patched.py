"""Tools of tests that replace what a broker in the same process needs; each refusal says what to set."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from types import ModuleType

FILES = (
    "pyfakefs has replaced the file functions of this process, also for brokers in it; use the fixture kafka_process, and "
    "request it before fs"
)
SOCKETS = (
    "pytest-socket blocks the sockets of this process, also for brokers in it and their helpers; run pytest with "
    "--allow-hosts=127.0.0.1, or mark the test with @pytest.mark.allow_hosts(['127.0.0.1'])"
)
THREADS = (
    "{} has replaced threads or sockets of this process, and a broker in it would wait for the test; use the fixture "
    "kafka_process"
)


def refuse_files() -> None:
    """Refuse to work on files that are not the machine's. Errors: RuntimeError."""
    if are_files_replaced():
        raise RuntimeError(FILES)


def are_files_replaced() -> bool:
    """Whether the module `os` is another than Python's, here or for what is imported next."""
    modules: tuple[object, ...] = (os, sys.modules["os"])
    return not all(isinstance(each, ModuleType) for each in modules)


def refuse_sockets() -> None:
    """Refuse to work without connections to this machine. Errors: RuntimeError."""
    if "pytest_socket" not in sys.modules:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of what it blocks
            with socket.create_server(("127.0.0.1", 0)) as one, socket.socket() as other:
                other.connect(one.getsockname())
    except RuntimeError as error:
        if type(error).__module__.startswith("pytest_socket"):
            raise RuntimeError(SOCKETS) from None
        raise


def refuse_threads() -> None:
    """Refuse to run on threads that are not the machine's, or where waiting for sockets is something else.

    Errors: RuntimeError.
    """
    for tool, module, check in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        if module in sys.modules:
            is_patched = getattr(sys.modules[module], check)
            if any(is_patched(each) for each in ("thread", "threading", "socket", "select")):
                raise RuntimeError(THREADS.format(tool))
