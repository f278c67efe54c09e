"""Partitions as replicas of this broker: roles, appends, reads, and who waits for what."""
