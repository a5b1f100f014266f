"""Reads from a site's ZooKeeper which topics a planned link would mirror, with ids, sizes and
configs.

It is read once, when a link is checked; it is neither watched nor cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from runtime.zookeeper.client import ZooKeeper
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import SurveyedTopic
from wire.rules.links import carries_topic
from wire.znodes import layout as znodes
from wire.znodes.config_znodes import decode_topic_config
from wire.znodes.topic_znodes import decode_topic

TOPICS_MAX = 1_000
"""Maximum number of topics that are read; further ones are only counted."""
READS_AT_ONCE = 200


async def survey_topics(
    record: LinkRecord, names: Iterable[str], zookeeper: ZooKeeper
) -> tuple[list[SurveyedTopic], int]:
    """The site's topics that the record carries, by name, and their total number."""
    carried = sorted(name for name in names if carries_topic(record, name))
    found: list[SurveyedTopic] = []
    looked_at = carried[:TOPICS_MAX]
    for first in range(0, len(looked_at), READS_AT_ONCE):
        read = await asyncio.gather(*(_topic(name, zookeeper) for name in looked_at[first : first + READS_AT_ONCE]))
        found += [topic for topic in read if topic is not None]
    return found, len(carried)


async def _topic(name: str, zookeeper: ZooKeeper) -> SurveyedTopic | None:
    stored = await zookeeper.get_or_none(znodes.topic_path(name))
    if stored is None:
        return None
    configs = await zookeeper.get_or_none(znodes.topic_config_path(name))
    assignment = decode_topic(name, stored[0])
    return SurveyedTopic(
        name=name,
        topic_id=assignment.topic_id,
        partition_count=len(assignment.partitions),
        configs={} if configs is None else decode_topic_config(name, configs[0]),
    )
