"""How a broker is put together, in phases: what it opens, its rooms, and what serves. No rules live here."""
