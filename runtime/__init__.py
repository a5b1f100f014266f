"""What a daemon stands on: clock, disk, ZooKeeper, gRPC server, metrics, logs, configuration, process. No domain words here."""
