"""A Kafka broker, and the site that it is a member of. See README.md."""

import wire  # noqa: F401 (before anything of kio, and before compiled modules: see there)
