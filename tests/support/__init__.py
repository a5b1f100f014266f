"""The common parts of tests: waiting for a condition, processes that never outlive a test, real
ZooKeeper and toxiproxy, Kafka clients.

Fixtures over these are in `tests/conftest.py`. The parts that the product needs as well (starting
ZooKeeper, finding Java) are in `deploy`.
"""
