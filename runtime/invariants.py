"""The error of a state machine whose invariant does not hold."""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """An invariant of a state machine does not hold; the message has its last decisions."""
