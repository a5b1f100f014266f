"""Identifies clients by a certificate's subject or a signed token.

Listeners of brokers and the HTTP bridge go by the same rules and the same options.
"""
