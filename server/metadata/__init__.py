"""What the broker knows of the cluster."""
