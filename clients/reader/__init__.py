"""The part that all consumers share: positions, fetchers for each broker, and the simple consumer
of one partition.
"""
