"""The project's own clients over raw batches: producer, simple consumer, high-level consumer
(ZooKeeper), poll-loop consumer.

`core/` decides (pure), the files beside it act. `wire/README.md` has the map; `docs/clients.md` is
the guide.
"""
