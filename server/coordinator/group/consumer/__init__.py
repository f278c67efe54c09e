"""Groups of the consumer protocol (KIP-848): the broker assigns, and members are led there step by step."""
