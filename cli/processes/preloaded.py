"""Everything that the daemons' commands import: the fork server of embedded sites imports this
module, so that no part of a site does so again.
"""

from __future__ import annotations

import kio.schema.api_versions.v3.request
import kio.schema.api_versions.v3.response
import kio.schema.list_config_resources.v1.request
import kio.schema.list_config_resources.v1.response
import kio.schema.metadata.v12.request
import kio.schema.metadata.v12.response
import kio.schema.offset_commit.v9.request
import kio.schema.offset_commit.v9.response

import bridge.access.security
import bridge.main
import cli.embedding.hosting
import cli.processes.daemons
import cli.shared.command_config
import mirror.running
import mirror.settings.config
import mirror.settings.plaintext_links
import wire.access.metrics
from broker.handlers.registry import load_handlers

__all__ = ["bridge", "cli", "kio", "mirror", "wire"]

load_handlers()
