"""The test suites of other projects, on kwire.testing and on Apache Kafka."""
