"""Connections to other brokers, hand-over at shutdown, and failure detection."""
