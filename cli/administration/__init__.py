"""The commands that look at one cluster and change it."""
