"""Log compaction: which logs are due, what stays of their records, and how the result takes its place."""
