"""TLS and SASL of a broker's listeners, and the principal of each connection."""
