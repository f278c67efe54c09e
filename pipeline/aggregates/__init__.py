"""What `kwire pipeline aggregate` is made of.

`schema.py` knows columns, `records.py` makes records and their faults of a topic's values, `kinds.py` groups them,
`batches.py` writes a batch.
"""
