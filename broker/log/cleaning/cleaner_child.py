"""The process that compacts: reads one plan after the other from its standard input and writes the
results to its standard output, both pickled behind a length.

It has a low priority, gets only plans, and ends with its input, so it never outlives the broker. It
imports little, asyncio above all not: the time until it is ready is part of each first compaction.
Started by `broker/log/cleaning/cleaner_process.py`.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import sys
from typing import BinaryIO, Final

from broker.log.cleaning.cleaner import CleaningFailed, CleaningPlan, CleaningResult, clean
from broker.log.errors import StorageError
from runtime.disk import RealDisk
from wire.batches.record_batch import InvalidBatch

LENGTH: Final = struct.Struct(">I")
NICENESS: Final = 10  # compaction must not slow producers down


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    """Carry out plans until the input ends."""
    disk = RealDisk()
    while head := requests.read(LENGTH.size):
        plan = pickle.loads(requests.read(LENGTH.unpack(head)[0]))  # noqa: S301  our own parent
        content = pickle.dumps(_carry_out(plan, disk))
        try:
            answers.write(LENGTH.pack(len(content)) + content)
            answers.flush()
        except BrokenPipeError:
            # the broker has ended: no caller waits for the answer
            # no clean end: standard output is gone, and its flush at exit would fail once more
            os._exit(0)


def _carry_out(plan: CleaningPlan, disk: RealDisk) -> CleaningResult | CleaningFailed:
    try:
        return clean(plan, disk)
    except InvalidBatch as fault:
        return CleaningFailed(
            is_invalid_batch=True, operation="", path="", reason=fault.reason, position=fault.position
        )
    except StorageError as failure:
        return CleaningFailed(
            is_invalid_batch=False, operation=failure.operation, path=failure.path, reason=failure.reason
        )


if __name__ == "__main__":
    # Ctrl-C reaches the whole group of the terminal; the broker decides
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    main(sys.stdin.buffer, sys.stdout.buffer)
