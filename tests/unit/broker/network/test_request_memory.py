"""Connections that wait for room for a large request."""

from __future__ import annotations

from broker.network.request_memory import RequestMemory


class Waiter:
    """A connection that found no room."""

    def __init__(self) -> None:
        self.reported = 0

    def memory_freed(self) -> None:
        """The connection is woken, because there may be room."""
        self.reported += 1


def test_a_connection_that_tries_again_waits_once_and_is_forgotten_when_it_closes() -> None:
    memory, waiter, other = RequestMemory(10), Waiter(), Waiter()
    taken = memory.take(10)
    assert taken is not None
    for connection in (waiter, other, waiter):
        memory.wait(connection)
    assert memory.waiting_count == 2
    memory.forget(waiter)
    assert memory.waiting_count == 1
    memory.give_back(taken)
    assert (waiter.reported, other.reported, memory.waiting_count) == (0, 1, 0)
