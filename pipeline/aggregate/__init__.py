"""`kwire pipeline aggregate`.

records.py       a topic's values become records or faults
kinds.py         groups records
batches.py       writes a batch
"""
