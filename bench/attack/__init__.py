"""What an honest client feels while another one attacks the broker with legal requests."""
