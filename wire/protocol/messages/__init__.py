"""Messages of the hot path written by hand, and our private messages."""
