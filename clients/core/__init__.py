"""Decisions of the clients: partitioners, batching, sequences, assignments, positions. No IO,
clock, chance or threads.
"""
