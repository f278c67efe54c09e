"""Producer ids, and the machine of the transaction coordinator."""
