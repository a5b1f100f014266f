"""`antipode produce` and `antipode consume`."""
