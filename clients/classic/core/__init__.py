"""Decisions of the classic consumer. Pure: no IO, clock, chance or threads."""
