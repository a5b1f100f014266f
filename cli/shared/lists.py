"""Lists as people give them to commands."""

from __future__ import annotations


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list, without empty ones."""
    return tuple(item.strip() for item in text.split(",") if item.strip())
