"""Cluster metadata: a tree of nodes in one of two stores, and Kafka's domain on top of it."""
