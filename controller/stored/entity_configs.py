"""Steps that change the stored configs of a user, client, address or group. The quotas and the
credentials of a user share one znode. Called by controller/stored/cluster_reader.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CreateNode, DeleteNode, SetNode, TransactionStep
from wire.rules.client_quotas import QuotaEntity
from wire.znodes.config_znodes import client_quota_path, decode_entity_config, encode_topic_config
from wire.znodes.group_configs import GROUP_CONFIGS, GroupConfigs, encode_group_configs, group_config_path


async def entity_config_steps(
    zookeeper: ZooKeeper, entity: QuotaEntity, keys: Collection[str], values: Mapping[str, str]
) -> list[TransactionStep]:
    """The steps that replace these keys of the entity by the values. Other keys are unchanged; a
    node without content and without children is removed.
    """
    path = client_quota_path(entity)
    found = await zookeeper.get_or_none(path)
    if found is None:
        await zookeeper.ensure_path(path.rpartition("/")[0])
        return [CreateNode(path=path, value=encode_topic_config(values))]
    payload, stat = found
    kept = {key: value for key, value in decode_entity_config(path, payload).items() if key not in keys}
    if not kept and not values and not await zookeeper.children(path):
        return [DeleteNode(path=path, version=stat.version)]
    return [SetNode(path=path, value=encode_topic_config({**kept, **values}), version=stat.version)]


async def group_config_steps(zookeeper: ZooKeeper, group: str, configs: GroupConfigs) -> list[TransactionStep]:
    """The steps that replace all configs of a group; without configs its node is removed."""
    path, value = group_config_path(group), encode_group_configs(configs)
    found = await zookeeper.get_or_none(path)
    if found is not None:
        version = found[1].version
        step = SetNode(path=path, value=value, version=version)
        return [step if configs else DeleteNode(path=path, version=version)]
    await zookeeper.ensure_path(GROUP_CONFIGS)
    return [CreateNode(path=path, value=value)] if configs else []
