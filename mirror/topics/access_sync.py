"""Keeps the ACLs, SCRAM users, client quotas and delegation tokens of an exact link's target like
those of its source, so that after a failover the same principals may log in and do the same things.

All rules are mirrored, for every resource, because one missing ACL can lock an application out.
The mirror removes a rule at the target that the source has removed, also if no mirror ran at that
time: the target's agents keep the keys of the rules that both sites have had
(`shared_access.py`). Rules that only the target has had stay: they were made for the target alone.
Both ends need an authorizer for ACLs; an end without one, or one that refuses, is reported in
`problems`, which `antipode links check` shows. After a change of the link's direction nothing is
written: the target's controller refuses what a round of the earlier epoch writes, because the
mirror learns the change later than the operators of the promoted site.

A change at the source begins a round at once, if the site has an authorizer (`access_watch.py`);
a round every interval finds what no such event brought. Rounds read all rules, so the pause after
each is several times as long as the round.

Each round leaves digests of what it has read at the source and carried. The mirror reports them,
and a planned move compares them with the fenced source's (`wire/rules/access_digests.py`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from mirror.link.core.link_roles import LinkRole
from mirror.link.known_link import KnownLink
from mirror.link.link_watch import AgentsUnreachable
from mirror.link.round_pauses import pause_between_rounds, pause_until
from mirror.topics.access_parts import AccessPart, AclsPart, QuotasPart, TokensPart, UsersPart
from mirror.topics.access_watch import AccessWatch
from mirror.topics.core.access_changes import access_changes
from mirror.topics.shared_access import SharedAccessKeys, SharedAccessPort, TooManyRules
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.client.requests.standby_rule_requests import Claim
from wire.rules.access_digests import ACLS, rule_key
from wire.rules.sync_reports import CarriedAccess

_log = get_logger("mirror.access")
_PAUSE_MIN_MS: Final = 50
_PAUSE_OF_A_ROUND: Final = 3
"""The pause between two rounds is this many times as long as the first one, if changes come all the
time.
"""


class AccessSync:
    """The task that carries ACLs, users, quotas and delegation tokens."""

    def __init__(
        self,
        *,
        source: KafkaClient,
        target: KafkaClient,
        watch: AccessWatch,
        link: KnownLink,
        shared: SharedAccessPort,
        clock: Clock,
        interval_ms: int,
        excluded_principals: Sequence[str] = (),
    ) -> None:
        self._source = source
        self._target = target
        self._watch = watch
        self._link = link
        self._clock = clock
        self._interval_ms = interval_ms
        self._excluded_principals = excluded_principals
        self._parts: tuple[AccessPart[Any, Any], ...] = (
            AclsPart(),
            UsersPart(link.view.name),
            QuotasPart(),
            TokensPart(link.view.name),
        )
        self._shared = SharedAccessKeys(shared)
        # The keys of each part's rules as this daemon has carried them; the agents may not have
        # stored the last ones.
        self._carried_keys: dict[str, frozenset[bytes]] = {}
        # The digests of the source's rules, by part, as they were last carried whole; empty for a
        # part that is not.
        self._digests = self._no_digests()
        self._whole_round_ms: float | None = None
        self._has_warned_of_many_rules = False
        self.problems: dict[str, str] = {}

    @property
    def carried(self) -> CarriedAccess:
        """The digests of the rules that are at the target, and the age of the round that carried
        all.
        """
        began_ms = self._whole_round_ms
        ago_ms = None if began_ms is None else round(self._clock.monotonic_ms() - began_ms)
        return CarriedAccess(dict(self._digests), ago_ms)

    async def run(self) -> None:
        """Compare each interval until cancelled."""
        while True:
            began_ms = self._clock.monotonic_ms()
            await self.round()
            await self._pause(round_ms=self._clock.monotonic_ms() - began_ms)

    async def _pause(self, *, round_ms: float) -> None:
        """Wait for the next interval, or for a change at the source."""
        pause_ms = min(max(_PAUSE_OF_A_ROUND * round_ms, _PAUSE_MIN_MS), self._interval_ms)
        if self._link.view.role is not LinkRole.MIRRORING or not self._digests.get(ACLS):
            pause_ms = self._interval_ms
        await pause_between_rounds(self._link, pause_ms)
        left_ms = self._interval_ms - pause_ms
        if left_ms and self._link.view.role is LinkRole.MIRRORING:
            await pause_until(self._watch.changed(timeout_ms=left_ms), self._link, left_ms)

    async def round(self) -> None:
        """Compare once and carry what differs; failures are in `problems`."""
        link = self._link.view
        if link.role in (LinkRole.TURNED, LinkRole.GONE):
            self.problems, self._carried_keys, self._whole_round_ms = {}, {}, None
            self._digests = self._no_digests()
            return
        problems: dict[str, str] = {}
        began_ms = self._clock.monotonic_ms()
        await self._shared.read(epoch=link.epoch)
        for part in self._parts:
            # A part whose round has failed may be at the target in part: it counts as not carried.
            digest: str | None = ""
            try:
                digest = await self._carry(part, Claim(link.name, link.epoch))
            except (KafkaClientError, AgentsUnreachable) as error:
                problems[f"({part.name})"] = f"not mirrored to the standby: {error}"
            self._digests.pop(part.name, None)
            if digest is not None:
                self._digests[part.name] = digest
        if not problems:
            self._whole_round_ms = began_ms
        for name in problems.keys() - self.problems.keys():
            _log.warning("some access rules are not mirrored", part=name, reason=problems[name])
        self.problems = problems

    def _no_digests(self) -> dict[str, str]:
        return {part.name: "" for part in self._parts}

    async def _carry(self, part: AccessPart[Any, Any], claim: Claim) -> str | None:
        """Returns the digest of the source's rules; None if the sites' settings leave nothing to
        carry.
        """
        found = await part.read(self._source, self._target)
        if found is None:
            return None
        theirs, actual = found
        # Excluded at both ends: what was carried before the exclusion is not removed by it.
        wanted, present = self._not_excluded(part, theirs), self._not_excluded(part, actual)
        shared = self._shared.of(part.name) | self._carried_keys.get(part.name, frozenset())
        key = partial(rule_key, part.name)
        to_set, to_remove, keys = access_changes(wanted, actual=present, shared=shared, key=key)
        # The keys are stored before the rules: a daemon that is killed in between must not leave
        # rules at the target that nothing removes.
        unstored = await self._keep(part, shared | keys, epoch=claim.epoch)
        if to_set or to_remove:
            await part.write(self._target, claim, to_set, to_remove)
            _note(part.name, to_set, to_remove)
        self._carried_keys[part.name] = keys
        unstored = unstored or await self._keep(part, keys, epoch=claim.epoch)
        if unstored:
            raise AgentsUnreachable(f"the rules that both sites have had are not known: {unstored}")
        return part.digest(theirs)

    async def _keep(self, part: AccessPart[Any, Any], keys: frozenset[bytes], *, epoch: int) -> str:
        """Store the keys of a part; returns why that failed."""
        try:
            await self._shared.keep(part.name, keys, epoch=epoch)
        except AgentsUnreachable as error:
            return str(error)
        except TooManyRules as error:
            self._warn_of_many_rules(str(error))
        return ""

    def _warn_of_many_rules(self, reason: str) -> None:
        if not self._has_warned_of_many_rules:
            _log.warning("rules that are removed while no mirror runs will stay at the standby", reason=reason)
        self._has_warned_of_many_rules = True

    def _not_excluded(self, part: AccessPart[Any, Any], rules: Mapping[Any, Any]) -> dict[Any, Any]:
        return {one: value for one, value in rules.items() if not self._is_excluded(part.principal(one))}

    def _is_excluded(self, principal: str) -> bool:
        return bool(principal) and any(re.fullmatch(pattern, principal) for pattern in self._excluded_principals)


def _note(what: str, added: Collection[object], removed: Collection[object]) -> None:
    _log.info(f"{what} are carried", added=sorted(map(str, added)), removed=sorted(map(str, removed)))
