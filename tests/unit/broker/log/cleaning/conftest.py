"""A log store for tests of the cleaner, whose clock they set."""

import pytest

from broker.log.directories.log_store import LogStore
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.logs_on_disk import NOW_MS


@pytest.fixture
def store(tmp_path):
    now = [NOW_MS]
    made = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: now[0])
    made.clock = now
    made.open(node_id=1, cluster_id="c")
    made.load(lambda topic: LogConfig())
    yield made
    made.abandon()
