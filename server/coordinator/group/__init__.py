"""The group coordinator: members and offsets of the groups in one partition of __consumer_offsets."""
