"""The modules that a test run's fork server imports: the daemons, every command, the parts of sites
that tests define, and the schemas of the requests that clients send.
"""

from __future__ import annotations

import importlib

import cli.embedding.embedded
import cli.embedding.port_file
import cli.processes.preloaded
import tests.support.lone_brokers.lone_broker
import tests.support.pairs.full_sites
import tests.support.pairs.lone_mirror
import tests.support.pairs.lone_site
import tests.support.sites.site_node
from cli.main import COMMANDS

__all__ = ["cli", "tests"]

for module, _ in COMMANDS.values():
    importlib.import_module(module)
