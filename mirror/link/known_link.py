"""The link as one mirror knows it: its record as last read, and a wait for a change of role.

`mirror/flow/followed_link.py` updates it; all tasks of the mirror read it.
"""

from __future__ import annotations

import asyncio

from mirror.link.link_watch import LinkView


class KnownLink:
    """The link of one mirror."""

    def __init__(self, view: LinkView) -> None:
        self._view = view
        self._role_changed = asyncio.Event()

    @property
    def view(self) -> LinkView:
        """The link as last read."""
        return self._view

    def update(self, view: LinkView) -> None:
        """Replace the view. A change of role wakes each task that awaits one."""
        has_turned = view.role is not self._view.role
        self._view = view
        if has_turned:
            # A new event for the next change: a task that waits again must not see this one twice.
            changed, self._role_changed = self._role_changed, asyncio.Event()
            changed.set()

    async def role_changed(self) -> None:
        """Wait for the next change of role."""
        await self._role_changed.wait()
