"""TLS of a client by Kafka's option names, with key stores as Java has them (JKS, PKCS12) and as
OpenSSL does (PEM).

`core/` reads what is in a store (pure), `settings.py` has the options and makes the
`ssl.SSLContext` of them.
"""
