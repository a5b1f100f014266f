"""The front door: the `antipode` command, the only package that may import all the others and put
them together.
"""

import os

# Children are other programs, never a copy of this process that goes on using gRPC; with fork
# handlers on, gRPC's core prints a warning at each of them. Read when the core starts, so set
# before any import; what the user set stays.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import wire  # noqa: F401  first, so that kio is loaded in the quick way whichever command runs
