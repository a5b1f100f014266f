"""The base of every daemon: clock, disk, ZooKeeper, gRPC server, metrics, logs, configuration,
process. No domain terms here.
"""

import os

# gRPC reads these variables at its first import. Children are started by exec alone, so gRPC needs
# no fork handlers, which would print warnings
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
# gRPC writes each failed TLS handshake to standard error as a line of INFO: a storm of wrong
# callers would fill the log. `wire/access/connections.py` counts such connections.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
