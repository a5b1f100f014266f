"""Decides changes of configs of groups, which a broker requests or another tool has written to
ZooKeeper. Brokers check names and values, because their settings bound the values
(`broker/settings/core/group_configs.py`).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from controller.core.decisions import QuotaOutcome
from controller.core.draft import Draft
from controller.core.entities.fence import change_refusal
from controller.core.entity_commands import AlterGroupConfigs, GroupConfigChange, GroupConfigsRead
from controller.core.state import facts
from wire.rules.access_digests import GROUP_CONFIGS
from wire.znodes.group_configs import GroupConfigs


def consider(draft: Draft, command: AlterGroupConfigs | GroupConfigsRead) -> str:
    """Add the facts of the command to the draft; returns the reason for the log."""
    if isinstance(command, GroupConfigsRead):
        _take(draft, command)
        return "configs of groups were read"
    if refusal := change_refusal(draft.cluster, GROUP_CONFIGS, command.claim):
        outcome = QuotaOutcome(error=ErrorCode.policy_violation, message=refusal)
        draft.quota_reply += [outcome] * len(command.changes)
        return f"a change of group configs was refused: {refusal}"
    for change in command.changes:
        draft.quota_reply.append(QuotaOutcome())
        configs = _changed(draft.cluster.group_configs.get(change.group, {}), change)
        _replace(draft, change.group, configs, must_store=True)
    return f"configs of {len(command.changes)} groups were requested"


def _changed(known: GroupConfigs, change: GroupConfigChange) -> dict[str, str]:
    kept = {} if change.replaces_all else known
    return {name: value for name, value in {**kept, **change.set_values}.items() if name not in change.remove}


def _take(draft: Draft, command: GroupConfigsRead) -> None:
    """Apply configs that another tool has written."""
    for group in sorted({*draft.cluster.group_configs, *command.configs}):
        _replace(draft, group, dict(command.configs.get(group, {})), must_store=False)


def _replace(draft: Draft, group: str, configs: dict[str, str], *, must_store: bool) -> None:
    if draft.cluster.group_configs.get(group, {}) == configs:
        return
    draft.record(facts.GroupConfigsReplaced(group=group, configs=configs, must_store=must_store))
    draft.changed_group_configs.add(group)
