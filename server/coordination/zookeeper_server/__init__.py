"""A node tree served in ZooKeeper's client protocol: one process, not replicated."""
