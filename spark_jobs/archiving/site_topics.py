"""Asks a site for the topics that an archive is about, with their ids and configs."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import ArchivedTopic
from spark_jobs.logs.log_reader import client
from spark_jobs.logs.survey import TopicFilter, answered


class SiteTopics(NamedTuple):
    """A cluster's id and those of its topics that are wanted."""

    cluster_id: str
    topics: tuple[ArchivedTopic, ...]


def site_topics(bootstrap: str, is_wanted: TopicFilter) -> SiteTopics:
    """The wanted topics with their ids and the configs that are set on them. Raises
    OperationalFailure when one has no id.
    """

    async def ask() -> SiteTopics:
        async with client(bootstrap) as reader:
            metadata = await reader.metadata()
            names = sorted(filter(is_wanted, metadata.topics))
            configs = await reader.topic_configs(names) if names else {}
        found = []
        for name in names:
            topic = metadata.topics[name]
            if topic.topic_id is None:
                raise OperationalFailure(f"topic {name} has no id: an archive needs brokers that give topics ids")
            kept = {key: value for key, value in sorted(configs.get(name, {}).items()) if value is not None}
            found.append(
                ArchivedTopic(
                    name=name, topic_id=str(topic.topic_id), partition_count=len(topic.partitions), configs=kept
                )
            )
        return SiteTopics(metadata.cluster_id or "", tuple(found))

    return asyncio.run(answered(bootstrap, ask))
