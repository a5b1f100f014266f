"""Agreements between two programs: frames, entities, record batches, private messages, znodes,
control services, the client.

Importing it loads kio's types first, and hides hypothesis from them: if that test library is
installed, kio registers strategies for its types, which adds 0.1 s to every start, or 1.5 s without
hypothesis's cache. A process that has imported hypothesis already (a test) keeps it. Then compiled
modules are made known to Python, before any of them is imported.
"""

from runtime import compiled
from runtime.hidden_modules import hidden

with hidden("hypothesis"):
    import kio.static.primitive  # noqa: F401

compiled.install()
