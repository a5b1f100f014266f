"""`antipode credentials`: an authority of one's own, certificates with roles, tokens."""
