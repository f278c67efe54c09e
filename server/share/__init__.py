"""Share groups at the leader of a partition (KIP-932): which records are in flight, and which member holds them.

`partition.py` is the state machine of one share partition, that is, of a partition as one group consumes it.
`in_flight.py` has its batches, `fetched.py` the data read for it, and `sessions.py` the share sessions of members. All
of these are pure. `manager.py` reads logs, persists states, and answers waiting fetches (`led.py`); `loading.py` loads
states.
"""
