"""Who an HTTP client is, over what it connects, and which Kafka user acts for it."""
