"""Decisions and layouts of `mirror/translate/notes`. Pure: no IO, clock, chance or threads."""
