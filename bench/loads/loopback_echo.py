"""Measures the machine's own delay of one message each millisecond.

    python -m bench.loads.loopback_echo SECONDS RESULT.json

One process sends a hundred bytes to itself over the loopback each millisecond, on the same event
loop as the daemons, and records how long after the due time each message returned. Run beside a
latency measurement, it shows which part of a tail is due to the machine: a message that waits for a
core waits here too, but once instead of at every hop.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from array import array
from pathlib import Path

import uvloop

MESSAGE = b"x" * 100
PAUSE_S = 0.001
PERCENTS = (50, 99, 99.9)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            writer.write(await reader.readexactly(len(MESSAGE)))
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def echoed_ms(duration_s: float) -> array[float]:
    """The time of each message from its due time until its return."""
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    found = array("d")
    ends = time.monotonic() + duration_s
    while (now := time.monotonic()) < ends:
        await asyncio.sleep(PAUSE_S)
        writer.write(MESSAGE)
        await reader.readexactly(len(MESSAGE))
        found.append(max(0.0, time.monotonic() - now - PAUSE_S) * 1000)
    writer.close()
    server.close()
    return found


def main() -> None:
    """Measure, and write the percentiles by their names."""
    import numpy as np

    found = np.array(uvloop.run(echoed_ms(float(sys.argv[1]))))
    names = (f"echo_p{str(percent).replace('.', '')}_ms" for percent in PERCENTS)
    document = dict(zip(names, (float(value) for value in np.percentile(found, PERCENTS)), strict=True))
    Path(sys.argv[2]).write_text(json.dumps(document), encoding="utf-8")


if __name__ == "__main__":
    main()
