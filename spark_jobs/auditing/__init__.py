"""Counts of records by window of event time, and what they mean."""
