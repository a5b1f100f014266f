"""The gRPC service: requests as commands, outcomes as replies."""
