"""Coordinators, each in a folder: pure machines over a partition of an internal topic, and their front desk, `coordinator.py`.

`common/` has the runtime that runs the machines, and what all coordinators have in common.
"""
