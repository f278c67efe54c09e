"""The data pipeline around the broker, on Spark: one folder per job, installed as `kwire.pipeline`.

A job's `job.py` has `run(options) -> exit code`, and its `options.py`, which needs no Spark, `add_arguments(parser)`; `main.py`
finds both by the folder's name. What jobs share:
`options.py` (the options of all jobs), `session.py` (Spark), `cluster.py` (requests to brokers outside of Spark),
`problems.py` (errors that users read), `progress.py` (what is shown while a job runs). Imports in this package are relative;
the broker's file formats come from `kwire.server.log`, and what all commands share from `kwire.server.arguments`, `streams` and
`times`.
"""
