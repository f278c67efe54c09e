"""Opening logs at the start of a broker, and mending them after an unclean stop."""
