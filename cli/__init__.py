"""The front door: the `antipode` command, the only package that may import all the others and put them together."""

import wire  # noqa: F401  first, so that kio is loaded in the quick way whichever command runs
