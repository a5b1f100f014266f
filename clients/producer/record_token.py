"""The caller's handle for a record: a future of its partition and offset."""

from __future__ import annotations

import asyncio

from msgspec import Struct, field

from clients.producer.producer_options import Delivered


class RecordToken(Struct, frozen=True):
    """Made inside the event loop. A caller may have cancelled the future; then the outcome is
    dropped.
    """

    outcome: asyncio.Future[Delivered] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def deliver(self, delivered: Delivered) -> None:
        """Report where the record is."""
        if not self.outcome.done():
            self.outcome.set_result(delivered)

    def reject(self, error: Exception) -> None:
        """Report why the record is lost."""
        if not self.outcome.done():
            self.outcome.set_exception(error)
            # The producer counts the failure; for a caller that ignores its futures, the event loop
            # must not log the error.
            self.outcome.exception()
