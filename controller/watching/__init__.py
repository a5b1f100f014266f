"""Watches: how the active controller notices changes that other processes make."""
