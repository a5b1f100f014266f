"""Counts, and the judgement of counts. Pure."""
