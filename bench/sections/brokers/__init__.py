"""Sections about one broker of each system."""
