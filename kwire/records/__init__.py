"""Record batches of magic 0, 1 and 2: reading, writing, converting, compressing."""
