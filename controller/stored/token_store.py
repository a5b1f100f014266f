"""Delegation tokens in the site's ZooKeeper: read whole, written one by one. `cluster_reader.py`
and `cluster_writer.py` use it; the writer guards the writes.
"""

from __future__ import annotations

from kazoo.exceptions import NoNodeError

from controller.core.state import facts
from runtime.logs import get_logger
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.handler import Watch
from runtime.zookeeper.nodes import CreateNode, DeleteNode, SetNode, TransactionStep
from wire.rules.delegation_tokens import DelegationToken
from wire.znodes.documents import MalformedZnode
from wire.znodes.token_znodes import TOKEN_CHANGES, TOKENS, decode_token, encode_token, token_path

_log = get_logger(__name__)


async def read_tokens(zookeeper: ZooKeeper) -> dict[str, DelegationToken]:
    """All tokens by id. A malformed one is skipped, with an error in the log."""
    try:
        ids = await zookeeper.children(TOKENS)
    except NoNodeError:
        return {}
    stored = await zookeeper.get_many([token_path(token_id) for token_id in ids])
    found: dict[str, DelegationToken] = {}
    for token_id, node in zip(ids, stored, strict=True):
        try:
            if node is not None:
                found[token_id] = decode_token(token_id, node[0])
        except MalformedZnode as error:
            _log.error("malformed delegation token is ignored", problem=str(error))
    return found


async def token_changes(zookeeper: ZooKeeper, watch: Watch | None = None) -> list[str]:
    """Paths of the notices of changed tokens."""
    return [f"{TOKEN_CHANGES}/{node}" for node in await zookeeper.children(TOKEN_CHANGES, watch=watch)]


async def token_steps(zookeeper: ZooKeeper, change: facts.DelegationTokenReplaced) -> list[TransactionStep]:
    """The steps of a multi that store the token, or remove it."""
    path = token_path(change.token_id)
    found = await zookeeper.get_or_none(path)
    if change.token is None:
        return [] if found is None else [DeleteNode(path=path, version=found[1].version)]
    value = encode_token(change.token)
    return [
        CreateNode(path=path, value=value)
        if found is None
        else SetNode(path=path, value=value, version=found[1].version)
    ]
