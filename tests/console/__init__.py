"""The console: its pure parts, its pages by HTTP, and in a browser."""
