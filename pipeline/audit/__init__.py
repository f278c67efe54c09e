"""`kwire pipeline audit`: places are read, measured and compared, and what is wrong becomes findings.

places.py        where records are: a broker's topics, an archive, a log directory; each gives rows and ranges
measure.py       from rows to counts, gaps and hashes; on Spark, with one shuffle of narrow rows
facts.py         what was measured in a partition, as plain values
segment_scan.py  a log directory's batches: checksums, markers, holes; one Spark task per segment
log_facts.py     puts the scans of a partition's segments together: transactions, gaps, what explains them
gaps.py          asks the broker why offsets of a topic have no record
rules.py         from facts to findings; compare.py: place against place
report.py        the outcome as table and JSON; page.py and plots.py: as a page
"""
