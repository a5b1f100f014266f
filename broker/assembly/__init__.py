"""The assembly of a broker: storage, replication, coordination and serving, over doors that the
caller provides.
"""
