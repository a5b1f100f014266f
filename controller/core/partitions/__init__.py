"""Changes of the leader and the replicas of one partition. Pure."""
