"""The columns of records' values, as users give them: Spark's DDL, Spark's JSON, JSON Schema, Avro."""
