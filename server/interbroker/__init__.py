"""What a broker of a cluster needs of the other brokers: connections, hand-over, signs of their death."""
