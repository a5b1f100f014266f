"""The one error of a machine that would contradict itself."""

from __future__ import annotations


class InvariantBroken(AssertionError):
    """A machine would do, or is, what it never may; the message has its last decisions."""
