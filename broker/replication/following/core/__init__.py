"""Decisions of `broker/replication/following`. Pure: no IO, clock, chance or threads."""
