"""The console: pages about a broker in a browser, on its HTTP listener. Imported on its first request, if it is enabled."""
