"""`kwire pipeline replay`.

from_archive.py, from_segments.py   where records come from; external_sort.py: brings those of many files in order
targets.py       where they go; into_source.py: refuses to write them into the topic that they come from
plan.py          what the tasks are; writer.py: what one of them does; progress.py: what is shown of all of them
"""
