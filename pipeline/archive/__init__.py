"""`kwire pipeline archive`.

plan.py          which offsets are read; checks.py: what is refused before that
fetched.py       the records of a partition from its broker, as Arrow batches
slices.py        what a task writes
files.py         files: staged, moved to their names, and read as the manifests list them
compaction.py    small files into larger ones
"""
