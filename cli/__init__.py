"""The front door: the `antipode` command, the only package that may import all the others and put them together."""

import os

# Children are other programs, never a copy of this process that goes on using gRPC. With the handlers on, gRPC's core prints a warning to the
# terminal at each child that is started. Read when gRPC's core starts, so before any import; what the user set stays.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import wire  # noqa: E402, F401  first, so that kio is loaded in the quick way whichever command runs
