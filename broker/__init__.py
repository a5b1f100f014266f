"""A Kafka broker, and the site that it is a member of. See README.md."""

import wire  # noqa: F401 (it makes compiled modules known, before the first one is imported)
