"""Writes a change of the configs that ZooKeeper keeps of a user, a client or an address: quotas and
credentials lie in one node beside each other. Called by controller/store.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from runtime.zookeeper import CreateNode, DeleteNode, SetNode, TransactionStep, ZooKeeper
from wire.rules.client_quotas import QuotaEntity
from wire.znodes import layout as znodes


async def entity_config_steps(
    zookeeper: ZooKeeper, entity: QuotaEntity, keys: Collection[str], values: Mapping[str, str]
) -> list[TransactionStep]:
    """The steps that replace these keys of the entity by the values. Keys of other kinds stay; a
    node without content and without children is removed.
    """
    path = znodes.client_quota_path(entity)
    found = await zookeeper.get_or_none(path)
    if found is None:
        await zookeeper.ensure_path(path.rpartition("/")[0])
        return [CreateNode(path=path, value=znodes.encode_topic_config(values))]
    payload, stat = found
    kept = {key: value for key, value in znodes.decode_entity_config(path, payload).items() if key not in keys}
    if not kept and not values and not await zookeeper.children(path):
        return [DeleteNode(path=path, version=stat.version)]
    return [SetNode(path=path, value=znodes.encode_topic_config({**kept, **values}), version=stat.version)]
