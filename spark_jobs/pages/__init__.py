"""What HTML pages of several jobs share."""
