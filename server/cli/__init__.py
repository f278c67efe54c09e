"""Commands of `kwire`, one module each: `add_arguments(parser)` and `run(options) -> exit code`.

A module is loaded only for its command, and loads heavy libraries (tqdm) in `run`.
"""
