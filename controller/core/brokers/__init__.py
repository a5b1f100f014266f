"""Brokers come and go. Pure."""
