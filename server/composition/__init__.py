"""The construction of a broker in phases: opened resources, rooms, and serving. This package contains no rules."""
