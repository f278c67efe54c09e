"""The share coordinator: the durable state of share partitions (KIP-932), and how it is asked at whichever broker keeps it."""
