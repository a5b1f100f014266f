"""The classic high-level consumer: a group that coordinates itself in ZooKeeper, with streams for
the application.
"""
