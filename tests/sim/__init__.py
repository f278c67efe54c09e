"""A whole cluster in one process, on a clock, a network, disks and a ZooKeeper that are all made up.

Brokers are real: their rooms are built by `server.broker.Broker`, and only the five seams are
replaced. Nothing waits for real time and nothing is left to chance but a seeded generator, so that
a run can be repeated by its seed. `python -m tests.sim --help` says how.
"""
