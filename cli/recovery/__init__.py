"""The commands around the loss of a site."""
