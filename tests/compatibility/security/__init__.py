"""The security part of the compatibility matrix: each client with each mechanism of login."""
