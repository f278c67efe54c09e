"""A simulated disk that loses, tears and refuses writes, and seeded schedules of crashes of real logs.

disk.py         the content of the system's cache and of the device; faults by the number of a call
topics.py       the settings and batches of topics
operations.py   the operations in one life: appends, flushes, truncations, compaction
workload.py     several lives of a log manager, ended by faults and started again
expected.py     the required content afterwards, independent of the tested code
invariants.py   the checks of an open log
cuts.py         a log truncated at every byte
plants.py       bugs planted on purpose, which the schedules must catch
"""
