"""Check whether the candidates of a site have the same site-wide settings.

Some keys apply to the whole site, but each candidate reads them from its own file: with different
files, the site's behaviour changes with each election. The active controller stores its values in
ZooKeeper, and each candidate compares them with its own when it starts and when it is elected.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from controller.config import ControllerSettings
from runtime.logs import get_logger
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CreateNode, SetNode, TransactionStep
from wire.protocol.json_documents import parse_json
from wire.znodes.controller_znodes import SITE_RULES

_log = get_logger(__name__)

SITE_WIDE: Final = (
    "num.partitions",
    "default.replication.factor",
    "antipode.replication.factor.max",
    "unclean.leader.election.enable",
    "delete.topic.enable",
    "auto.leader.rebalance.enable",
    "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage",
)
"""Keys by which a controller decides for all brokers of the site."""


def rules_of(settings: ControllerSettings) -> dict[str, str]:
    """The site-wide keys with their values, as a properties file has them."""
    by_alias = {field.alias: getattr(settings, name) for name, field in ControllerSettings.model_fields.items()}
    return {key: str(by_alias[key]).lower() for key in SITE_WIDE}


def differences(own: Mapping[str, str], others: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Both values of each key that both files have and in which they differ."""
    return {key: (own[key], others[key]) for key in own.keys() & others.keys() if own[key] != others[key]}


async def warn_of_other_rules(zookeeper: ZooKeeper, settings: ControllerSettings) -> None:
    """Log a warning if the settings of the active controller, or of the last one, differ from this
    candidate's.
    """
    found = await zookeeper.get_or_none(SITE_RULES)
    if found is None:
        return
    try:
        document = parse_json(found[0])
        node, others = int(document["node"]), {str(key): str(value) for key, value in document["rules"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        _log.warning("settings stored by the last controller cannot be decoded", path=SITE_RULES, problem=repr(error))
        return
    for key, (own, other) in sorted(differences(rules_of(settings), others).items()):
        _log.warning(
            "controller candidates of this site have different settings; the elected one applies its own",
            key=key,
            value=own,
            controller=node,
            controllers_value=other,
        )


async def rules_step(zookeeper: ZooKeeper, settings: ControllerSettings) -> TransactionStep:
    """The step that stores the site-wide settings of a newly elected controller."""
    value = json.dumps({"version": 1, "node": settings.node_id, "rules": rules_of(settings)}).encode()
    if await zookeeper.exists(SITE_RULES) is None:
        return CreateNode(path=SITE_RULES, value=value)
    return SetNode(path=SITE_RULES, value=value)
