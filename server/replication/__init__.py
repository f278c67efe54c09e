"""This broker's partition replicas: roles, appends, reads, and the requests that wait on them."""
