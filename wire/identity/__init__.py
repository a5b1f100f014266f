"""Who a client is by what it shows: a certificate's subject, or a signed token.

Listeners of brokers and the HTTP bridge go by the same rules and the same options.
"""
