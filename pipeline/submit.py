"""The script for `spark-submit`: `spark-submit ... pipeline/submit.py JOB OPTIONS`.

kwire is installed on every node, or comes as a wheel with `--py-files`.
"""

import sys

from kwire.pipeline.main import main

if __name__ == "__main__":
    sys.exit(main())
