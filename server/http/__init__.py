"""The HTTP listener: health, metrics, and whatever else is served to operators. Imported only if it is switched on."""
