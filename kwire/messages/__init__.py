"""Kafka's messages, one module per API with request and response together."""
