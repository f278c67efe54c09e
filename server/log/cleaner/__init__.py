"""Log compaction: which log is cleaned next, which records are kept, how segments are replaced."""
