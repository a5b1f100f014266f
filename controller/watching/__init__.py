"""What the active controller notices of changes that others make."""
