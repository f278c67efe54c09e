"""Coordinators: pure machines over a partition of an internal topic, and the runtime that runs them."""
