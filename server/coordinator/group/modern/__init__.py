"""The parts that consumer groups and share groups have in common: members with epochs, and operations that write."""
