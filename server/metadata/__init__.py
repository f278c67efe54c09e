"""The broker's metadata of the cluster."""
