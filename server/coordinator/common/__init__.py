"""What all coordinators have in common: the runtime that runs their machines, and what these are made of."""
