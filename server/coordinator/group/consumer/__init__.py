"""Groups of the consumer protocol (KIP-848): the broker assigns, and members reconcile step by step."""
