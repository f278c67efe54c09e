"""What an audit is made of: places are read, measured, compared, and what is wrong becomes findings.

places.py        where records are: a broker's topics, an archive, a log directory; each gives rows and ranges
measure.py       rows to counts, gaps, hashes; on Spark, one shuffle of narrow rows
facts.py         what was measured of a partition, as plain values
segment_scan.py  a log directory's batches: checksums, markers, holes; one Spark task a segment
log_facts.py     the scans of a partition's segments in order: transactions, gaps, what explains them
gaps.py          why offsets of a topic have no record, asked of the broker
rules.py         facts to findings; compare.py: place against place
report.py        all of it as table and JSON; page.py and plots.py: as a page
"""
