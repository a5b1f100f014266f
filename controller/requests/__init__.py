"""The gRPC service: it turns requests into commands and outcomes into replies."""
