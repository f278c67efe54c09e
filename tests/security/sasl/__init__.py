"""Logging in with SASL."""
