"""The same requests to Apache Kafka 3.9.2 and to kwire, compared field by field.

A scenario is a function of a Peer and a version; it makes calls, each with a label. It runs once on each broker. The
two lists of answers, with ids, times and addresses replaced by symbols, must be equal. allowed.py lists the permitted
differences with their reasons.
"""
