"""The identity of clients, and their permissions: pure rules, without I/O."""
