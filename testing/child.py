"""Runs the broker of a `ProcessBroker`: `python -m kwire.testing.child SETTINGS`, the settings as JSON.

Standard input is a pipe that the parent holds. When the parent ends, however it does, the pipe closes, and so does
this process.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading


def main() -> int:
    """Run the broker until a signal, or the end of the parent; return the exit status."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from kwire.server.config import BrokerConfig
    from kwire.server.run import run

    from .settings import with_defaults

    status: int = run(BrokerConfig(with_defaults(json.loads(sys.argv[1]))))
    return status


def end_with_parent() -> None:
    """Wait until no process holds the pipe any more, and end immediately."""
    while os.read(0, 1024):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
