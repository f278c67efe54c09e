"""Opens the logs when a broker starts, and repairs them after an unclean stop."""
