"""The project's own clients over raw batches: producer, simple consumer, high-level consumer
(ZooKeeper), poll-loop consumer.

Each `core/` decides (pure); the files beside it do the IO. `clients/README.md` has the map;
`docs/clients.md` is the guide.
"""
