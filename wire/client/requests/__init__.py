"""Requests of one API each to one broker: all versions, plain results, no retries."""
