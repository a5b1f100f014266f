"""Decisions about callers, without IO."""
