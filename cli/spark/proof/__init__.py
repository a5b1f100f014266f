"""The parts of `antipode reconcile`."""
