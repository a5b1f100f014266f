"""Decisions of the consumer. Pure: no IO, clock, chance or threads."""
