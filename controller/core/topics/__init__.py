"""Topics come and go. Pure."""
