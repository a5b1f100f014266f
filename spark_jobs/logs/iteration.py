"""Answers of an asynchronous reader, one after another, in code without an event loop: what Spark's
Python workers run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import TypeVar

Answer = TypeVar("Answer")


def iterated(answers: AsyncGenerator[Answer]) -> Iterator[Answer]:
    """The answers in order. Each runs the event loop once, whose start costs more than a batch."""
    with asyncio.Runner() as runner:
        # Runner.run would install a signal handler for each answer, and Python formats the whole
        # answer as text to name that handler in an error that it suppresses
        loop = runner.get_loop()
        try:
            while True:
                try:
                    yield loop.run_until_complete(anext(answers))
                except StopAsyncIteration:
                    return
        finally:
            loop.run_until_complete(answers.aclose())
