"""What a broker tells of itself to Prometheus. Imported only if HTTP is switched on."""
