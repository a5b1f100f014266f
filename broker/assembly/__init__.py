"""How a broker is put together: storage, replication, coordination and serving, over doors that
come from outside.
"""
