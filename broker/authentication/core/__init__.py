"""Decisions about who a client is: mapping rules, distinguished names, SASL exchanges. Pure."""
