"""Waits until processes that a drill has started serve again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import grpc

from dr.drill.environment import Environment, EnvironmentProcess
from dr.drill.lag import LagProbe
from dr.drill.steps.waiting import until
from dr.sites.channels import Channels
from dr.sites.core.evidence import NOT_ASKED
from runtime.process import OperationalFailure
from wire.control.mirror_pb2 import DescribeMirrorRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Asks the sites and mirrors of one drill whether they serve."""

    environment: Environment
    link: str
    probe: LagProbe
    channels: Channels

    async def wait(self, started: Sequence[EnvironmentProcess], *, within_ms: int, what: str) -> None:
        """Wait until the started processes' sites and mirrors answer, with every live broker at the
        link's epoch.
        """
        sites = [
            name for name, site in self.environment.sites.items() if any(item in started for item in site.processes)
        ]
        mirrors = [mirror for mirror in self.environment.mirrors if mirror in started and mirror.grpc]

        async def are_serving() -> bool:
            answers = [await self._is_serving(name) for name in sites]
            answers += [await self._is_mirror_serving(mirror.grpc) for mirror in mirrors]
            return all(answers)

        await until(are_serving, within_ms=within_ms, what=f"{what}: does not serve")

    async def _is_serving(self, site: str) -> bool:
        """Return True when all brokers of the site are registered and enforce the link."""
        try:
            reply = await self.probe.client(site).describe_link(self.link)
        except OperationalFailure:
            return False
        enforced = [epoch for epoch in reply.enforced_epochs.values() if epoch != NOT_ASKED]
        return len(enforced) >= len(self.environment.sites[site].grpc)

    async def _is_mirror_serving(self, address: str) -> bool:
        try:
            await self.channels.mirror_admin(address).DescribeMirror(DescribeMirrorRequest(), timeout=1)
        except grpc.aio.AioRpcError:
            return False
        return True
