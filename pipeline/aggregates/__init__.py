"""The parts of `kwire pipeline aggregate`.

`schema.py` reads the schema, `records.py` turns a topic's values into records or faults, `kinds.py` groups records,
`batches.py` writes a batch.
"""
