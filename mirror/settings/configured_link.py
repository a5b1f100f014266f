"""The record of a translate link out of the mirror's configuration: no end of such a link stores
one. Caller: `mirror/translate_ends.py`.
"""

from __future__ import annotations

from mirror.link.link_watch import LinkView, stand
from mirror.settings.config import MirrorConfig
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST


def link_view_of(config: MirrorConfig) -> LinkView:
    """The link's record as the configuration describes it; its direction never changes."""
    whitelist = [".*"] if config.whitelist is None else [*config.whitelist]
    if config.is_carrying_heartbeats and config.naming.heartbeats is not None:
        whitelist.append(config.naming.heartbeats)
    blacklist = DEFAULT_TOPIC_BLACKLIST if config.blacklist is None else config.blacklist
    record = LinkRecord(
        name=config.link_name,
        source_site=config.source_alias,
        target_site=config.target_alias,
        mode="translate",
        active_site=config.source_alias,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=whitelist,
        topic_blacklist=[*blacklist, *config.naming.skipped],
        group_whitelist=config.group_whitelist if config.is_syncing_groups else (),
        group_blacklist=config.group_blacklist,
    )
    return stand(record, config.target_alias)
