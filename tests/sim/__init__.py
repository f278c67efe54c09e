"""A whole cluster in one process, with a simulated clock, network, disks and ZooKeeper.

The brokers are real: `server.broker.Broker` builds them, and only the five seams are replaced.
Nothing waits for real time, and all randomness comes from one seeded generator, so that a run can
be repeated by its seed. `python -m tests.sim --help` says how.
"""
