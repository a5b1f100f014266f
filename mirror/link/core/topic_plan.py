"""Plans the changes at the target that make its topics equal to the source's.

The source defines the goal: the mirrored topics with their ids, partition counts and configs. A
possible change is an action; an impossible one is a finding, which the flows of the topic's
partitions show as their state. The plan never deletes a topic: a topic that is gone from the source
stays at the target until a person decides, so that a mirror survives a mistaken deletion.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, assert_never
from uuid import UUID

from msgspec import Struct

from wire.client.requests.topic_requests import in_requests
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import carries_topic, matches
from wire.rules.topic_configs import COPY_BEGINS
from wire.rules.topic_names import is_internal_topic

WAY_OUT = "`antipode links reset`"
"""The command that a person runs for a copy that cannot be mirrored any further."""

MIRRORS_OWN: Final = re.compile(
    r"(.*\W)?heartbeats|mm2.*internal|.*checkpoints.internal|antipode-(offset-map|group-offsets)\..*"
)
"""Names of topics that mirrors themselves create at the source of a translate link."""

NameAtTarget = Callable[[str], str]
"""The name of a topic's copy at a target whose topics the mirror never deletes (translate
links).
"""


class TopicView(Struct, frozen=True, kw_only=True):
    """A topic at one site; configs are the ones set on the topic, None when they are not known
    (yet), or when the site hides them.
    """

    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str] | None = None


class CreateTopic(Struct, frozen=True, kw_only=True):
    """The target lacks the topic."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: Mapping[str, str]


class GrowTopic(Struct, frozen=True, kw_only=True):
    """The source's topic has more partitions."""

    name: str
    partition_count: int


class AlterConfigs(Struct, frozen=True, kw_only=True):
    """The topic's configs differ: set the source's, remove what only the target has."""

    name: str
    set: Mapping[str, str]
    remove: tuple[str, ...]


class DeleteCopy(Struct, frozen=True, kw_only=True):
    """Delete the target's copy at a person's request; by id, so that another topic of the same name
    is never deleted. The plan never contains it.
    """

    name: str
    topic_id: UUID


Action = CreateTopic | GrowTopic | AlterConfigs | DeleteCopy


def requests_of(actions: Sequence[Action]) -> Iterator[tuple[Action, ...]]:
    """The actions in as few requests as their bounds allow, each of one kind, each kind in the
    order given.
    """
    by_kind: dict[type[Action], list[Action]] = {}
    for action in actions:
        by_kind.setdefault(type(action), []).append(action)
    for alike in by_kind.values():
        yield from in_requests(alike, _partitions_asked)


def _partitions_asked(action: Action) -> int:
    return action.partition_count if isinstance(action, CreateTopic | GrowTopic) else 0


class Finding(enum.Enum):
    """A problem of a topic that no action can solve."""

    REPLACED = "replaced"
    SHRUNK = "shrunk"
    GONE = "gone"
    HIDDEN = "hidden"


class Absence(enum.Enum):
    """The reason why a site did not list a topic, from its answer to a request for the name."""

    GONE = "gone"
    # The site does not show whether the topic exists.
    HIDDEN = "hidden"
    # The topic exists after all, or will soon: the next look shows it.
    UNSURE = "unsure"


class Trouble(Struct, frozen=True):
    """A finding with its reason in a sentence."""

    finding: Finding
    reason: str


class Plan(Struct, frozen=True, kw_only=True):
    """The actions, the findings, and the topics that are the same at both sites."""

    actions: tuple[Action, ...]
    troubles: Mapping[str, Trouble]
    agreed: frozenset[str]


def plan(
    source: Mapping[str, TopicView],
    target: Mapping[str, TopicView],
    *,
    excluded_configs: Sequence[str] = (),
    name_at_target: NameAtTarget | None = None,
    absences: Mapping[str, Absence] | None = None,
) -> Plan:
    """The plan for topics of the link alone: leave out what it does not carry before calling.
    `excluded_configs` are patterns of names. `absences` give the cause for topics that the source
    does not list; a topic without a cause is gone.
    """
    actions: list[Action] = []
    troubles: dict[str, Trouble] = {}
    agreed: set[str] = set()
    for name, wanted in sorted(source.items()):
        actual = target.get(name)
        if actual is None and wanted.configs is None:
            troubles[name] = _hidden_configs_trouble(name)
        elif actual is None:
            configs = _carried(wanted.configs or {}, excluded_configs)
            actions.append(
                CreateTopic(
                    name=name, topic_id=wanted.topic_id, partition_count=wanted.partition_count, configs=configs
                )
            )
        elif trouble := find_trouble(name, wanted, actual, name_at_target):
            troubles[name] = trouble
        else:
            agreed.add(name)
            actions += _adjustments(name, wanted, actual, excluded_configs)
    for name in sorted(target.keys() - source.keys()):
        trouble = absence_trouble(name, target[name], (absences or {}).get(name, Absence.GONE), name_at_target)
        if trouble is not None:
            troubles[name] = trouble
    return Plan(actions=tuple(actions), troubles=troubles, agreed=frozenset(agreed))


def nothing_carried(record: LinkRecord, topics: Iterable[str]) -> str:
    """A sentence if the source has topics and the link's filters carry none of them; heartbeats of
    mirrors do not count.
    """
    is_translate = record.mode == "translate"
    theirs = [
        name
        for name in topics
        if not is_internal_topic(name) and not (is_translate and MIRRORS_OWN.fullmatch(name) is not None)
    ]
    if not theirs or any(carries_topic(record, name) for name in theirs):
        return ""
    return (
        f"nothing is mirrored: the filters carry none of the {len(theirs)} topics at the source (whitelist "
        f"{','.join(record.topic_whitelist) or '(nothing)'}; blacklist {','.join(record.topic_blacklist) or '(nothing)'})"
    )


def way_to_a_new_copy(name: str, name_at_target: NameAtTarget | None = None) -> str:
    """The advice for a person on how to have a topic copied again, as the end of a sentence."""
    if name_at_target is None:
        return f"{WAY_OUT} quarantines records that the source may lack, deletes the copy and mirrors the topic again"
    return f"when topic {name_at_target(name)} is deleted at the target, it is mirrored anew"


def gone_trouble(name: str, actual: TopicView, name_at_target: NameAtTarget | None = None) -> Trouble:
    """The target has a copy of a topic that the source does not have."""
    way_out = f"the topic is deleted through a broker of the target, or by {WAY_OUT}"
    if name_at_target is not None:
        way_out = f"topic {name_at_target(name)} is deleted there"
    return Trouble(
        Finding.GONE,
        f"the source has deleted topic {name}; the target keeps its copy (id {actual.topic_id}) until {way_out}",
    )


def absence_trouble(
    name: str, actual: TopicView, absence: Absence, name_at_target: NameAtTarget | None = None
) -> Trouble | None:
    """The problem of a copy whose topic the source does not list; None while it is uncertain."""
    match absence:
        case Absence.GONE:
            return gone_trouble(name, actual, name_at_target)
        case Absence.HIDDEN:
            return Trouble(
                Finding.HIDDEN,
                f"the source hides topic {name} from the mirror (topic_authorization_failed), so the mirror does not know whether it "
                f"still exists; the target keeps its copy (id {actual.topic_id}), and mirroring resumes when the mirror's principal has "
                "DESCRIBE and READ on the topic at the source",
            )
        case Absence.UNSURE:
            return None
        case _:
            assert_never(absence)


def _hidden_configs_trouble(name: str) -> Trouble:
    """A topic without a copy, whose configs are not known: a copy without them could lose records
    that the source keeps.
    """
    return Trouble(
        Finding.HIDDEN,
        f"the source hides the configs of topic {name} from the mirror (topic_authorization_failed), so it has no copy yet; the "
        "topic is mirrored when the mirror's principal has DESCRIBE_CONFIGS on it at the source",
    )


def find_trouble(
    name: str, wanted: TopicView, actual: TopicView, name_at_target: NameAtTarget | None = None
) -> Trouble | None:
    """Return the reason why the two cannot be the same topic."""
    way_out = way_to_a_new_copy(name, name_at_target)
    if wanted.topic_id != actual.topic_id:
        return Trouble(
            Finding.REPLACED,
            f"topic {name} was deleted and created again: it has id {wanted.topic_id} at the source, the target's copy is of id "
            f"{actual.topic_id}; {way_out}",
        )
    if wanted.partition_count < actual.partition_count:
        return Trouble(
            Finding.SHRUNK,
            f"topic {name} has {wanted.partition_count} partitions at the source and {actual.partition_count} at the "
            f"target (id {wanted.topic_id}): partitions never become fewer; {way_out}",
        )
    return None


def _adjustments(name: str, wanted: TopicView, actual: TopicView, excluded: Sequence[str]) -> list[Action]:
    actions: list[Action] = []
    if wanted.partition_count > actual.partition_count:
        actions.append(GrowTopic(name=name, partition_count=wanted.partition_count))
    if wanted.configs is None or actual.configs is None:
        return actions
    ours, theirs = _carried(wanted.configs, excluded), _carried(actual.configs, excluded)
    if ours != theirs:
        to_set = {key: value for key, value in ours.items() if theirs.get(key) != value}
        actions.append(AlterConfigs(name=name, set=to_set, remove=tuple(sorted(theirs.keys() - ours.keys()))))
    return actions


def _carried(configs: Mapping[str, str], excluded: Sequence[str]) -> dict[str, str]:
    # The config with the offset at which a copy begins is never copied between sites.
    kept_here = tuple(excluded)
    return {name: value for name, value in configs.items() if name != COPY_BEGINS and _travels(name, kept_here)}


@lru_cache(maxsize=1024)
def _travels(name: str, excluded: tuple[str, ...]) -> bool:
    return matches(name, whitelist=(".*",), blacklist=excluded)
