"""Share groups at the leader of a partition (KIP-932): which records are in flight, and who has them.

`partition.py` is the machine of one share partition, a partition as one group consumes it; `in_flight.py` its batches,
`fetched.py` what was read for it, `sessions.py` the members' sessions. All of these are pure. `manager.py` reads logs,
has states written, and answers the fetches that wait (`led.py`); `loading.py` has states read.
"""
