"""The client of ZooKeeper: sessions, reads, transactions, watches and access rights."""
