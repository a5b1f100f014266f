"""Gives the znodes of a site the ACLs of new ones."""

from __future__ import annotations

import contextlib

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

from runtime.process import OperationalFailure
from runtime.zookeeper.client import ZooKeeper

ZOOKEEPERS_OWN = "/zookeeper"


async def set_acls(connect: str, *, is_dry_run: bool) -> tuple[int, int]:
    """The number of znodes that had another ACL, and the number of all znodes. Children come before
    their parents, so that a run that was interrupted is repeated. Raises OperationalFailure.
    """
    zookeeper = ZooKeeper(connect)
    await zookeeper.start()
    try:
        return await _below(zookeeper, "/", is_dry_run=is_dry_run)
    except NoAuthError as error:
        raise OperationalFailure(
            "ZooKeeper refuses the change: give the user that made the znodes (zookeeper.sasl.username)"
        ) from error
    except KazooException as error:
        raise OperationalFailure(f"ZooKeeper at {connect} did not do it: {error!r}") from error
    finally:
        await zookeeper.stop()


async def _below(zookeeper: ZooKeeper, path: str, *, is_dry_run: bool) -> tuple[int, int]:
    changed = looked_at = 0
    with contextlib.suppress(NoNodeError):  # the znode was deleted after its parent was listed
        for name in await zookeeper.children(path):
            child = f"{path.rstrip('/')}/{name}"
            if child != ZOOKEEPERS_OWN:
                below = await _below(zookeeper, child, is_dry_run=is_dry_run)
                changed, looked_at = changed + below[0], looked_at + below[1]
        # the root too: its DELETE is the right to delete /controller and /controller_epoch
        changed += await zookeeper.set_acls(path, is_dry_run=is_dry_run)
        looked_at += 1
    return changed, looked_at
