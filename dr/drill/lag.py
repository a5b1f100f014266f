"""Measures the lag of the standby from the answers of both sites and of the mirror, for waits, the
live view and the report's curve.

The logs of both sites decide, by their leader epochs. If the active site does not answer, the last
state that the mirror read from it counts. The mirror also reports the lag in time, and its own
state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import grpc

from dr.drill.environment import Environment
from dr.proof.core.verification import LinkVerification
from dr.sites.channels import Channels
from dr.sites.core.divergence import Divergence, diverged_copies
from dr.sites.core.evidence import positions_of
from dr.sites.core.positions import PartitionPosition
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.control.broker_pb2 import QuarantineUse
from wire.control.mirror_pb2 import DescribeMirrorReply, DescribeMirrorRequest
from wire.control.mirror_pb2_grpc import MirrorAdminStub
from wire.control.site_pb2 import DescribeLinkReply
from wire.protocol.ids import TopicPartition
from wire.rules.links import other_site, supersedes

SAMPLE_INTERVAL_S = 0.5
SILENT = "silent"
"""The state of a mirror that does not answer."""
MIRROR_TIMEOUT_S = 0.5
"""The timeout (s) of one of many observations; a single observation waits longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenVerdict:
    """The active site's stored verdict on the link's protection, times in Unix ms; an empty reason
    means protected.
    """

    epoch: int
    since_ms: int
    reason: str
    judged_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """One observation. `lag_records` is None if it is unknown; `lag_ms` and `lag_bytes` are -1 if
    the mirror did not report them.

    `lag_records` counts up to the end of the source's logs: the loss of a failover at this moment.
    `copyable_records` of them are at all in-sync replicas of the source, so that a mirror may copy
    them.
    """

    at_ms: int
    lag_records: int | None
    copyable_records: int | None = None
    lag_ms: int = -1
    lag_bytes: int = -1
    mirror_state: str = SILENT
    """The state of the mirror that writes to the standby."""
    mirror_reason: str = ""
    """Why that mirror is in this state; empty if it does not answer."""
    resting_mirror_state: str = SILENT
    """The state of the mirror that will write to the active site once that site is the standby."""
    active_site: str = ""
    epoch: int = 0
    sync_policy: str = ""
    suspended_sync_policy: str = ""
    unreachable: tuple[str, ...] = ()
    truncated_records: int = 0
    """Records that replicas at the sites have truncated since their brokers started."""
    protection: SeenVerdict | None = None
    """The active site's last verdict; None if there is none, or if the site does not answer."""
    proof: LinkVerification | None = None
    """The last comparison by the active site's agents; None before the first."""
    quarantines: tuple[tuple[str, QuarantineUse], ...] = ()
    """The quarantine of each broker that has entries, with its site."""
    differing: tuple[str, ...] = ()
    """Partitions whose copies have another history than the active site, as sentences. They count
    as lacking all records from the first difference on.
    """


class LagProbe:
    """Asks the sites and mirrors of one link."""

    def __init__(self, environment: Environment, link: str, channels: Channels, clock: Clock) -> None:
        entry = environment.link(link)
        self._link = link
        self._sites = (entry.source, entry.target)
        self.channels = channels
        self._clients = {
            name: SiteClient(name, environment.sites[name].grpc, channels) for name in (entry.source, entry.target)
        }
        self._mirrors = {
            site: channels.mirror_admin(mirror.grpc)
            for site, mirror in environment.mirrors_of(link).items()
            if mirror.grpc
        }
        self._clock = clock
        self.latest: LagSample | None = None
        """The last sample; None before the first."""

    def client(self, site: str) -> SiteClient:
        """The client of one of the two sites. OperationalFailure for another name."""
        if site not in self._clients:
            raise OperationalFailure(f"site {site!r} is not part of link {self._link}: {', '.join(self._clients)}")
        return self._clients[site]

    def standby(self, sample: LagSample) -> str:
        """The other site than the active one of a sample; "" if the sample has no active site."""
        return next((site for site in self._sites if site != sample.active_site), "") if sample.active_site else ""

    async def sample(self, *, mirror_timeout_s: float = MIRROR_TIMEOUT_S) -> LagSample:
        """Ask both sites and the mirror once."""
        self.latest = sample = await self._sample(mirror_timeout_s)
        return sample

    async def _sample(self, mirror_timeout_s: float) -> LagSample:
        described, replies = await asyncio.gather(
            self._describe_mirrors(mirror_timeout_s),
            asyncio.gather(*(self._describe(client) for client in self._clients.values())),
        )
        at_sites = dict(zip(self._clients, replies, strict=True))
        known = {name: reply for name, reply in at_sites.items() if reply is not None}
        if not known:
            return LagSample(at_ms=self._clock.now_ms(), lag_records=None, unreachable=tuple(at_sites))
        record = next(iter(known.values())).record
        for reply in known.values():
            record = reply.record if supersedes(reply.record, record) else record
        mirror = described.get(other_site(record, record.active_site))
        resting = described.get(record.active_site)
        differing = await self._differing(known, record.active_site)
        standby = next((name for name in known if name != record.active_site), "")
        named = [one.sentence(copy_site=standby, source_site=record.active_site) for one in differing.values()]
        return LagSample(
            at_ms=self._clock.now_ms(),
            lag_records=_lag(known, record.active_site, lambda position: position.log_end_offset, differing),
            copyable_records=_lag(known, record.active_site, lambda position: position.safe_end_offset, differing),
            lag_ms=max((item.lag_ms for item in mirror.partitions), default=-1) if mirror is not None else -1,
            lag_bytes=_lag_bytes(mirror),
            mirror_state=_state(mirror),
            mirror_reason=mirror.reason if mirror is not None else "",
            resting_mirror_state=_state(resting),
            active_site=record.active_site,
            epoch=record.epoch,
            sync_policy=record.sync_policy,
            suspended_sync_policy=record.sync_policy_to_restore,
            unreachable=tuple(name for name, reply in at_sites.items() if reply is None),
            truncated_records=sum(cut.records for reply in known.values() for cut in reply.cuts),
            quarantines=tuple((name, use) for name, reply in known.items() for use in reply.quarantines),
            differing=tuple(named),
            protection=_protection(known.get(record.active_site)),
            proof=_proof(known.get(record.active_site)),
        )

    async def _differing(
        self, known: dict[str, DescribeLinkReply], active_site: str
    ) -> dict[TopicPartition, Divergence]:
        """Copies with another history. Both sites are asked at the same time, so the copy may
        appear ahead of an older answer of the source; then the source is asked again.
        """
        found = _diverged(known, active_site)
        if (
            found
            and active_site in self._clients
            and (again := await self._describe(self._clients[active_site])) is not None
        ):
            known[active_site] = again
            found = _diverged(known, active_site)
        return dict(sorted(found.items()))

    async def _describe(self, client: SiteClient) -> DescribeLinkReply | None:
        try:
            return await client.describe_link(self._link)
        except OperationalFailure:
            return None

    async def _describe_mirrors(self, timeout_s: float) -> dict[str, DescribeMirrorReply]:
        """The mirrors that answer, by the site that each writes to."""

        async def describe(stub: MirrorAdminStub) -> DescribeMirrorReply | None:
            try:
                reply: DescribeMirrorReply = await stub.DescribeMirror(DescribeMirrorRequest(), timeout=timeout_s)
            except grpc.aio.AioRpcError:
                return None
            return reply

        replies = await asyncio.gather(*(describe(stub) for stub in self._mirrors.values()))
        return {site: reply for site, reply in zip(self._mirrors, replies, strict=True) if reply is not None}

    async def follow(self, take: Callable[[LagSample], None]) -> None:
        """Give a sample to `take` twice a second until cancelled."""
        while True:
            take(await self.sample())
            await asyncio.sleep(SAMPLE_INTERVAL_S)


def _protection(active: DescribeLinkReply | None) -> SeenVerdict | None:
    if active is None or not active.HasField("protection"):
        return None
    found = active.protection
    return SeenVerdict(epoch=found.epoch, since_ms=found.since_ms, reason=found.reason, judged_at_ms=found.judged_at_ms)


def _proof(active: DescribeLinkReply | None) -> LinkVerification | None:
    if active is None or not active.HasField("verification"):
        return None
    return LinkVerification.of_message(active.verification)


def _state(mirror: DescribeMirrorReply | None) -> str:
    return mirror.state if mirror is not None else SILENT


def _lag_bytes(mirror: DescribeMirrorReply | None) -> int:
    lags = [item.lag_bytes for item in mirror.partitions] if mirror is not None else []
    # With an unknown part the sum would be too small, so it is unknown as a whole.
    return sum(lags) if lags and min(lags) >= 0 else -1


def _diverged(known: Mapping[str, DescribeLinkReply], active_site: str) -> dict[TopicPartition, Divergence]:
    standby = next((reply for name, reply in known.items() if name != active_site), None)
    if standby is None or active_site not in known:
        return {}
    missing = {(topic.topic, partition) for topic in standby.unprotected for partition in topic.partitions}
    copies = {key: position for key, position in positions_of(standby.partitions).items() if key not in missing}
    return diverged_copies(copies, positions_of(known[active_site].partitions))


def _lag(
    known: Mapping[str, DescribeLinkReply],
    active_site: str,
    end_of: Callable[[PartitionPosition], int],
    differing: Mapping[TopicPartition, Divergence],
) -> int | None:
    standby = next((reply for name, reply in known.items() if name != active_site), None)
    if standby is None:
        return None
    there = positions_of(standby.partitions)
    active = known.get(active_site)
    ends: dict[TopicPartition, int] = (
        {key: end_of(item) for key, item in positions_of(active.partitions).items()}
        if active is not None
        else {key: item.source_high_watermark for key, item in there.items()}
    )
    kept = {key: position.log_end_offset for key, position in there.items()}
    kept |= {key: one.parts_at for key, one in differing.items()}
    return sum(max(0, end - kept.get(key, 0)) for key, end in ends.items())
