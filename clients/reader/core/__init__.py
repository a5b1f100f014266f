"""Decisions of the reader. Pure: no IO, clock, chance or threads."""
