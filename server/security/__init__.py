"""Who a client is, and what it may do: pure rules, without I/O."""
