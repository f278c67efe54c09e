"""Measures an honest client's experience while another client attacks the broker with valid requests."""
