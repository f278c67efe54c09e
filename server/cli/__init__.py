"""Commands of `kwire`, one module each: `add_arguments(parser)` and `run(options) -> exit code`.

A module is loaded only when its command was asked for, and loads what is heavy (kafka-python, tqdm) in `run`.
"""
