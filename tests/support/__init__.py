"""The common parts of tests: waiting for a condition, processes that never outlive a test, real
ZooKeeper and toxiproxy, Kafka clients.

Fixtures over these are in `tests/conftest.py`. What the product needs as well (starting ZooKeeper,
finding Java) is in `deploy`.
"""
