"""The base of every daemon: clock, disk, ZooKeeper, gRPC server, metrics, logs, configuration,
process. No domain terms here.
"""

import os

# read when gRPC is first imported: children are started by exec alone, so it need not prepare for a
# fork, nor speak of it
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
