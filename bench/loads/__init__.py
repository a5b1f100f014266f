"""Where the load comes from, and how late it arrives."""
