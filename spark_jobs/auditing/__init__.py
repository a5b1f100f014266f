"""Counts of records by windows of event time, and their judgement."""
