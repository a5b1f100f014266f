"""The `antipode` command with all of its subcommands, for tests that call it in their process."""

from __future__ import annotations

from cli.main import assemble

app = assemble()
