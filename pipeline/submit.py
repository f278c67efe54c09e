"""The script for `spark-submit`: `spark-submit ... pipeline/submit.py JOB OPTIONS`.

kwire is installed on every node, or comes as a wheel with `--py-files`.
"""

import sys


def run() -> int:
    """Run the job; Ctrl-C while modules are being imported ends without a traceback."""
    try:
        from kwire.pipeline.main import main

        code: int = main()
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(run())
