"""The log: partition directories in Apache Kafka's on-disk formats."""
