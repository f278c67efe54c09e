"""Metrics that clients push (KIP-714): who should push what, and what has come."""
