"""The metrics of a broker for Prometheus. Imported only if HTTP is enabled."""
