"""The base of every daemon: clock, disk, ZooKeeper, gRPC server, metrics, logs, configuration,
process. No domain terms here.
"""

import os

# gRPC reads this variable at its first import. Children are started by exec alone, so gRPC needs no
# fork handlers, which would print warnings
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
