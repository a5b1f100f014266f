"""Decisions about a client's identity: mapping rules, distinguished names, SASL exchanges. Pure."""
