"""Logins with SASL: the exchange on a connection, and the mechanisms that check credentials."""
