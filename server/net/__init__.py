"""Sockets, connections and the memory their requests take."""
