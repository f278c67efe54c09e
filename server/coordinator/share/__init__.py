"""The share coordinator's machine: the durable state of share partitions (KIP-932)."""
