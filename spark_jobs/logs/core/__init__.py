"""Pieces of logs, and the columns of their rows. Pure."""
