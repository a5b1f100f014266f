"""The front door: the `antipode` command, the only package that may import all the others and put
them together.
"""

import os

# Children are always started by exec, so gRPC needs no fork handlers, which would print a warning
# for each child. gRPC reads the variable at its import, so it is set before any import; a value of
# the user is kept.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# pydantic reads this one when the first model is made, which some import does. No plugin is used,
# and the search for plugins opens the metadata of every installed package.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

import wire  # noqa: F401 first: any command then loads kio in the fast way
