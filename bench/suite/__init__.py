"""The benchmark: Apache Kafka 3.9.2 and 4.3.0 and kwire at the same work, one at a time. python -m bench.suite"""
