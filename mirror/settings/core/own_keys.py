"""The keys of an Antipode mirror's own file: which of them have no effect, and why. Other keys get
no remark.

`config.py` reads the effective ones. Without this a misspelt key would silently leave a default in
force.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from mirror.settings.core.mirror_maker_file import Verdict
from mirror.settings.core.mirror_maker_keys import LIKENESS, Fate

OF_TRANSLATE_LINKS: Final = re.compile(
    r"(source|target)\.alias|topic\.naming\..*|replication\..*|(heartbeats|checkpoints|offset-syncs)\.topic\..*|isolation\.level"
    r"|heartbeats\.replication\.enabled|antipode\.target\.(existing|transactions.*)|groups(\.exclude)?|sync\..*|acl\..*"
    r"|antipode\.acl\..*|emit\..*"
)
"""Keys that an exact link does not read: its record and its sites decide instead."""
OF_EXACT_LINKS: Final = re.compile(r"site\.agents|link\.refresh\.interval\.ms")


class Switch(NamedTuple):
    """A setting that must be set before others have an effect."""

    setting: str
    keys: re.Pattern[str]


SHARING: Final = Switch(
    "antipode.sharing.enabled=true",
    re.compile(r"antipode\.sharing\.(?!enabled|session\.timeout\.ms).+|partition\.assignment\.strategy"),
)
SESSION: Final = Switch(
    "antipode.sharing.enabled=true, or on translate links without transactions",
    re.compile(r"antipode\.sharing\.session\.timeout\.ms"),
)
NAMING_TABLE: Final = Switch("topic.naming.policy=table", re.compile(r"topic\.naming\.table"))
TRANSACTIONAL: Final = Switch("antipode.target.transactions=true", re.compile(r"antipode\.target\.transactions\..+"))

FORMER_KEYS: Final[Mapping[str, str]] = {
    "queue.size": "queue.byte.size bounds what is between fetch and acknowledgement, in bytes instead of messages",
    "offset.commit.interval.ms": (
        "positions are the target's log ends and need no commits; group.sync.interval.ms is how often groups' offsets are carried"
    ),
    "consumer.config": "source.bootstrap.servers and source.* say how to reach the source, in this file",
    "producer.config": "target.bootstrap.servers and target.* say how to reach the target, in this file",
    "message.handler": "records pass as they are; topic.naming.policy=table with topic.naming.table names topics otherwise at the target",
    "message.handler.args": "records pass as they are; topic.naming.policy=table with topic.naming.table names topics otherwise",
}
"""Options of the first MirrorMaker without a key of the same name here, and their replacements."""

READ_BEFORE: Final = re.compile(r"config\.providers(\..+)?")
"""Keys that serve only to replace references in values."""


def idle_keys(
    given: Collection[str],
    *,
    known: Collection[str],
    old_spellings: Mapping[str, str],
    is_translate: bool,
    switched_off: Sequence[Switch],
) -> tuple[Verdict, ...]:
    """The keys without an effect, in the order given. `old_spellings` maps earlier names to the
    present ones.
    """
    verdicts: list[Verdict] = []
    others, mode = (OF_EXACT_LINKS, "exact") if is_translate else (OF_TRANSLATE_LINKS, "translate")
    for key in given:
        present = old_spellings.get(key, key)
        if present != key and present in given:
            verdicts.append(Verdict(key, Fate.NOT_HONOURED, f"{present} is used, which is in the file too"))
        elif others.fullmatch(present) and present in known:
            verdicts.append(Verdict(key, Fate.NOT_HONOURED, f"it applies only to link.mode={mode}"))
        elif switches := [switch.setting for switch in switched_off if switch.keys.fullmatch(present)]:
            verdicts.append(Verdict(key, Fate.NOT_HONOURED, f"it applies only with {switches[0]}"))
        elif present not in known and key in FORMER_KEYS:
            verdicts.append(Verdict(key, Fate.NOT_HONOURED, FORMER_KEYS[key]))
        elif present not in known and not READ_BEFORE.fullmatch(key):
            alike = get_close_matches(key, known, n=1, cutoff=LIKENESS)
            verdicts.append(Verdict(key, Fate.UNKNOWN, f"is {alike[0]} meant?" if alike else "no setting of a mirror"))
    return tuple(verdicts)
