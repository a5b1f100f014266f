"""A command whose messages about unusable values of options and arguments name the value: typer's
own messages name only the option and what is accepted.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand


class NamingCommand(TyperCommand):
    """A command of `antipode`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            # the library that checked the value knows it
            known = getattr(error.__cause__, "errors", None)
            if known is not None and (found := known()):
                accepted = str(found[0]["msg"])
                error.message = f"{found[0]['input']}: {accepted[:1].lower()}{accepted[1:]}"
            raise


def name_values(app: typer.Typer) -> None:
    """Have every command of a group, and of the groups below it, name unusable values."""
    for command in app.registered_commands:
        command.cls = NamingCommand
    for group in app.registered_groups:
        if group.typer_instance is not None:
            name_values(group.typer_instance)
