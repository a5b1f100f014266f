"""Sections about mirrors between two clusters."""
