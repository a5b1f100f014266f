"""What brokers keep of removed records, for `antipode quarantine`."""
