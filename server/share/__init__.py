"""Share groups at the leader of a partition (KIP-932): which records are in flight, and which member holds them.

`partition.py` is the window of one share partition, that is, of a partition as one group consumes it; `in_flight.py` has
its batches, `states.py` the states of their records. `acquisition.py`, `acknowledgement.py`, `locks.py` and `writes.py`
are the operations on it. `fetched.py` has the data read for it, and `sessions.py` the share sessions of members. All of
these are pure. `manager.py` reads logs, persists states, and answers waiting fetches (`led.py`); `loading.py` loads
states.
"""
