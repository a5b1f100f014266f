"""The data and decisions of an archive: contents, plans, retention, restores. Pure."""
