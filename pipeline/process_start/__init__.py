"""A folder that is put on the path of Python processes, for the one module in it, which Python runs when it starts."""
