"""A small blocking client over the wire library, for any Kafka cluster: what the helpers of a test ask with."""
