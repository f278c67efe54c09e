"""The console: browser pages about a broker, on its HTTP listener. Imported on its first request, if it is enabled."""
