"""Tests of server/security."""
