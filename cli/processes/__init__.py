"""The commands that run daemons and whole sites."""
