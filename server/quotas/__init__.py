"""Quotas of clients, as Apache Kafka measures and enforces them. Pure: time is passed in."""
