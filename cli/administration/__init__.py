"""The commands that show and change one cluster."""
