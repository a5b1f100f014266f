"""Decisions of the producer. Pure: no IO, clock, chance or threads."""
