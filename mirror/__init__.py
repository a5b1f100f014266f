"""The mirror daemon: keeps a site's topics byte-exact copies of another site's. See README.md."""

import wire  # noqa: F401 (before anything of kio: see there)
