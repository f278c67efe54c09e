"""Asks brokers as a client does: what to ask and how answers are read are pure; wire.py and contact.py have the sockets."""
