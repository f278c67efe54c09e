"""A disk in memory that loses, tears and refuses, and seeded schedules of crashes over real logs.

disk.py         what the system has in its cache and what the device has; faults by the number of a call
topics.py       their settings and batches
operations.py   the work of a life: appends, flushes, truncations, compaction
workload.py     lives of a log manager, cut off and opened again
expected.py     what must be there afterwards, kept apart from the code that is tested
invariants.py   the checks of an open log
cuts.py         a log cut at every byte
plants.py       bugs planted on purpose, which the schedules must catch
"""
