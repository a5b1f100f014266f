"""The follower's side of replication: fetch from the leader, append, truncate where histories
differ.
"""
