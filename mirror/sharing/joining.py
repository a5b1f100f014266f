"""How a daemon becomes one of several of its link: through a group at the target, or through
ZooKeeper where the configuration names one.

Caller: mirror/main.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from mirror.settings.config import MirrorConfig
from mirror.sharing.group_sharing import GroupSharing
from mirror.sharing.ownership import OnGain
from mirror.sharing.zookeeper_sharing import ZooKeeperSharing
from mirror.sites.dialing import Dialing
from mirror.sites.kafka_site import RETRY_BUDGET_MS
from runtime.addresses import HostPort
from runtime.doors import ProcessDoors
from wire.client.raw_client import KafkaClient


def make_sharing(
    config: MirrorConfig, target: Sequence[HostPort], *, client_id: str, on_gain: OnGain, doors: ProcessDoors
) -> GroupSharing | ZooKeeperSharing:
    """The membership among the daemons of the link; the caller closes a `GroupSharing`."""
    if config.sharing_zookeeper_connect:
        return ZooKeeperSharing(
            config.sharing_zookeeper_connect,
            config.link_name,
            strategy=config.sharing_strategy,
            session_timeout_ms=config.sharing_session_timeout_ms,
            clock=doors.clock,
            open_zookeeper=doors.open_zookeeper,
            on_gain=on_gain,
        )
    options = Dialing(config, client_id=client_id).target
    return GroupSharing(
        KafkaClient(target, options, site_local=True, retry_budget_ms=RETRY_BUDGET_MS),
        config.link_name,
        strategy=config.sharing_strategy,
        session_timeout_ms=config.sharing_session_timeout_ms,
        clock=doors.clock,
        on_gain=on_gain,
    )
