"""The share coordinator's state machine: the durable state of share partitions (KIP-932)."""
