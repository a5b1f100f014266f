"""Links, failover and drills: who is active, how that changes, what a change cost, and the
rehearsal of it all.
"""
