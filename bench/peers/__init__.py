"""The systems that are compared, and the line between them."""
