"""A mirror daemon as a process: `python -m tests.support.pairs.lone_mirror key=value...`. Prints
one line of JSON with its ports.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mirror.main import MirrorDaemon
from mirror.settings.config import load_config
from runtime.logs import configure
from runtime.process import run_daemon


async def run(properties: dict[str, str], stop: asyncio.Event) -> None:
    """Mirror until `stop`, or until the daemon cannot continue."""
    daemon = MirrorDaemon(load_config(properties))
    await daemon.start()
    daemon.failed.add_done_callback(lambda _: stop.set())
    print(json.dumps({"ready": daemon.metrics_port, "grpc": daemon.grpc_port}), flush=True)
    await stop.wait()
    result = await daemon.stop()
    print(json.dumps({"drained": result is not None and result.is_complete}), flush=True)
    if daemon.failed.done():
        raise daemon.failed.result()


if __name__ == "__main__":
    configure("mirror", level=os.environ.get("LOG_LEVEL", "INFO"))
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    sys.exit(run_daemon(lambda stop: run(given, stop)))
