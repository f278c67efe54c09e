"""The data pipeline around the broker, on Spark: one module a job, installed as `kwire.pipeline`.

A job's module has `add_arguments(parser)` and `run(options) -> exit code`; `main.py` finds it by name. What jobs share:
`options.py` (what all of them are told), `session.py` (Spark), `cluster.py` (what is asked of the broker outside of
Spark), `problems.py` (errors a user reads), `progress.py` (what is shown meanwhile). Imports in here are relative; what the
jobs need of the broker's file formats comes from `kwire.server.log`.
"""
