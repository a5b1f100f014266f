"""Decisions that the rooms of `clients` share: partitioners, slots, lines of waiters. No IO, clock,
chance or threads.
"""
