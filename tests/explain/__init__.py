"""Tests of server/explain."""
