"""The front door: the `antipode` command, the only package that may import all the others and put them together."""
