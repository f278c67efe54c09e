"""Brokers killed again and again under load, and a checker of what their clients saw."""
