"""The poll-loop consumer: subscription, membership in a group of the classic protocol, prefetch and
commits.
"""
