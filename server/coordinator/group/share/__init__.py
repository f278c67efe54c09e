"""Share groups (KIP-932): members, target assignments, and which share partitions have a state."""
