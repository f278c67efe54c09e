"""Commands of `kwire`, one module each: `add_arguments(parser)` and `run(options) -> exit code`.

A module is imported only for its command, and imports heavy libraries (tqdm) in `run`.
"""
