"""The HTTP listener: health, metrics, and other pages for operators. Imported only if it is enabled."""
