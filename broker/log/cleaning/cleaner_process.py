"""Compaction in separate processes: decoding records would block the event loop even from a thread.

`CleanerProcess` starts `broker/log/cleaning/cleaner_child.py` when there is first something to
clean, and hands it one plan at a time. `CleanerProcesses` are as many of them as there are plans at
the same time.

Caller: broker/main.py.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from typing import Final

from broker.log.cleaning import cleaner_child
from broker.log.cleaning.cleaner import CleaningFailed, CleaningPlan, CleaningResult
from broker.log.cleaning.cleaner_child import LENGTH
from broker.log.errors import StorageError
from wire.batches.record_batch import InvalidBatch

END_TIMEOUT_S: Final = 2.0


class CleanerProcess:
    """One cleaning process, started when needed and restarted when it has died."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()

    async def clean(self, plan: CleaningPlan) -> CleaningResult:
        """Carry out the plan there. Raises StorageError (also when the process dies) or
        InvalidBatch.
        """
        async with self._lock:
            try:
                answer = await self._ask(plan)
            except (OSError, asyncio.IncompleteReadError) as error:
                await self._end()
                raise StorageError("compacting", plan.directory, f"the cleaner process ended ({error})") from None
            except BaseException:
                # the caller was cancelled, so this response has no receiver
                await self._end()
                raise
        if isinstance(answer, CleaningResult):
            return answer
        if answer.is_invalid_batch:
            raise InvalidBatch(answer.reason, answer.position)
        raise StorageError(answer.operation, answer.path, answer.reason)

    async def _ask(self, plan: CleaningPlan) -> CleaningResult | CleaningFailed:
        process = await self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        content = pickle.dumps(plan)
        process.stdin.write(LENGTH.pack(len(content)) + content)
        await process.stdin.drain()
        (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
        answer: CleaningResult | CleaningFailed = pickle.loads(await process.stdout.readexactly(length))  # noqa: S301  our own child
        return answer

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                # no look for site packages: all of the path is handed over
                "-S",
                "-m",
                cleaner_child.__name__,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # the child finds modules where this process does, also from an archive or a test
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                # a Ctrl-C in the terminal is for the broker, which ends its child itself
                start_new_session=True,
            )
        return self._process

    async def stop(self) -> None:
        """End the process; its unfinished output has no effect."""
        await self._end()

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        # the end of its input would suffice, but the process may be executing a plan
        process.stdin.close()
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_TIMEOUT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


class CleanerProcesses:
    """One process for each plan that is carried out at the same time; idle ones are used again."""

    def __init__(self) -> None:
        self._idle: list[CleanerProcess] = []
        self._busy: set[CleanerProcess] = set()

    async def clean(self, plan: CleaningPlan) -> CleaningResult:
        """Like `CleanerProcess.clean`, in a free process."""
        cleaner = self._idle.pop() if self._idle else CleanerProcess()
        self._busy.add(cleaner)
        try:
            return await cleaner.clean(plan)
        finally:
            self._busy.discard(cleaner)
            self._idle.append(cleaner)

    async def stop(self) -> None:
        """End all of them."""
        await asyncio.gather(*(cleaner.stop() for cleaner in (*self._idle, *self._busy)))
