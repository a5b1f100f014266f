"""The commands of golden failover scripts: a link between two sites in memory, broken and failed
over line by line.

write N [to SITE]        clients write N records; the answer says how many were acknowledged
mirror [N]               the mirror copies (at most N) records
commit N [to SITE]       the group board commits offset N
carry                    the mirror carries what groups have committed
down SITE, up SITE       a site is killed, is started again and hears its peer
link down, link up       the mirror loses and finds its way
unfenceable SITE         a broker of the site does not enforce a fence
fail over to SITE [max lag N] [accepting data loss] [until STEP]
look                     both records and logs
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dr.failover.core.steps import FailoverPolicy
from tests.unit.dr.core.link_model import KEY, PLACE, ModelLink, Operator
from wire.control.cluster_pb2 import LinkPhase

_FAIL_OVER = re.compile(
    r"fail over to (?P<site>\w+)(?: max lag (?P<lag>\d+))?(?P<accepts> accepting data loss)?(?: until (?P<until>\w+))?"
)


class FailoverScene:
    """Answers the commands of one script."""

    def __init__(self) -> None:
        self._link = ModelLink()
        self._written = 0

    def answer(self, command: str) -> str:
        """One line or several, without blank ones."""
        verb, _, rest = command.partition(" ")
        verbs: dict[str, Callable[[str], str]] = {
            "write": self._write,
            "mirror": self._mirror,
            "commit": self._commit,
            "carry": lambda _: self._carry(),
            "down": lambda site: self._turn(site, is_up=False),
            "up": lambda site: self._turn(site, is_up=True),
            "link": self._set_link,
            "unfenceable": self._unfenceable,
            "fail": lambda _: self._fail_over(command),
            "look": lambda _: self._look(),
        }
        return verbs[verb](rest)

    def _write(self, rest: str) -> str:
        count, _, site = rest.partition(" to ")
        acknowledged = 0
        for _ in range(int(count)):
            acknowledged += self._link.site(site or "a").write(f"v{self._written}")
            self._written += 1
        return f"{acknowledged} acknowledged"

    def _mirror(self, rest: str) -> str:
        self._link.mirror(batch_max=int(rest or 1_000_000))
        return f"b has {len(self._link.b.partitions[KEY].log)} of {len(self._link.a.partitions[KEY].log)}"

    def _commit(self, rest: str) -> str:
        offset, _, site = rest.partition(" to ")
        return "acknowledged" if self._link.site(site or "a").commit(int(offset)) else "not now"

    def _carry(self) -> str:
        self._link.carry_groups()
        return f"the group is at {self._link.b.offsets.get(PLACE, 'nothing')} at b"

    def _turn(self, site: str, *, is_up: bool) -> str:
        returning = self._link.site(site)
        returning.is_up = is_up
        if is_up:
            returning.confirmed_epoch = 0
            returning.adopt(self._link.site("b" if site == "a" else "a").record)
        return "ok"

    def _set_link(self, rest: str) -> str:
        self._link.is_link_up = rest == "up"
        return "ok"

    def _unfenceable(self, site: str) -> str:
        self._link.site(site).may_be_fenced = False
        return "ok"

    def _fail_over(self, command: str) -> str:
        match = _FAIL_OVER.fullmatch(command)
        assert match is not None, command
        policy = FailoverPolicy(
            lag_records_max=int(match["lag"]) if match["lag"] else None,
            accepts_data_loss=bool(match["accepts"]),
            drain_timeout_ms=2_000,
        )
        operator = Operator(self._link, to_site=match["site"], policy=policy)
        for step in operator.steps():
            if step == match["until"]:
                return "\n".join([*operator.story, f"(the operator's process dies before it can {step})"])
        account = self._link.site(match["site"]).accounts.get(self._link.site(match["site"]).record.epoch)
        kept = [] if account is None else [loss.sentence for loss in account.partitions]
        groups = [account.groups.sentence] if account is not None and account.groups is not None else []
        return "\n".join([*operator.story, *kept, *groups])

    def _look(self) -> str:
        lines = []
        for site in (self._link.a, self._link.b):
            record = site.record
            phase = LinkPhase.Name(record.phase).lower()
            writable = "takes writes" if site.is_writable() else "takes no writes"
            end = len(site.partitions[KEY].log)
            group = f", group at {site.offsets[PLACE]}" if PLACE in site.offsets else ""
            lines.append(
                f"{site.name}: epoch {record.epoch}, {record.active_site} active, {phase}, {writable}, log end {end}{group}"
            )
        return "\n".join(lines)
