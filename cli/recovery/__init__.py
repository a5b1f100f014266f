"""The commands for disaster recovery."""
