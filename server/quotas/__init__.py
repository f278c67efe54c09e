"""Client quotas, measured and enforced as in Apache Kafka. Pure: time is a parameter."""
