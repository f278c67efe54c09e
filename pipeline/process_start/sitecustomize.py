"""Makes a Python process of Spark's import PySpark from its folder; Python itself runs a module of this name when it starts.

Spark starts a process for each streaming query on `kwire-log`, and gives it ten seconds. PySpark comes from `pyspark.zip` first,
from where it is compiled anew each time: two thirds of the CPU time of the start.
"""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from kwire.pipeline.unpacked import leave_archives

leave_archives()
# The module of this name that would have been run otherwise; its name is ours now.
sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
spec = PathFinder.find_spec("sitecustomize", sys.path)
if spec is not None and spec.loader is not None:
    spec.loader.exec_module(module_from_spec(spec))
