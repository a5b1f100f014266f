"""Reads removed records that brokers keep in quarantine, for `antipode quarantine`."""
