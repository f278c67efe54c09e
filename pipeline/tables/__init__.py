"""Apache Iceberg and Delta tables of an archive: each topic's files as commits that lakehouses read.

An archive's manifests stay what counts, and a table follows them (`follower.py`): each commit of a table adds the files of
the archive's newest commits and says, in that same commit, which one it has reached. A run that was killed in between finds
that out from the table and continues there, so that each record is in the table once.
"""
