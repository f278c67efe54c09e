"""Share groups (KIP-932): members, target assignments, and the share partitions that have a state."""
