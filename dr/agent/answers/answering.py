"""The common part of all answers: the agent's parts, and how its errors become gRPC statuses."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from msgspec import Struct

from dr.agent.account_store import LinkUnknown
from dr.agent.arbiter import Arbiter
from dr.agent.equality_watch import EqualityWatch
from dr.agent.failover_watch import FailoverWatch
from dr.agent.leases.keeper import LeaseKeeper
from dr.agent.links_store import LinkConflict, LinksStore
from dr.agent.own_brokers import OwnBrokers
from dr.agent.peer_watch import PeerWatch
from dr.agent.protection_judge import ProtectionJudge
from dr.agent.rehearsals import Rehearsals
from dr.agent.shared_access import SharedAccessStore
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.sites.channels import INTERRUPTED_KEY
from dr.sites.core.link_checks import automatic_problems, overlap_problems
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.zookeeper.client import ZooKeeper
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2_grpc import SiteAgentServicer
from wire.znodes.documents import MalformedZnode

ARBITER_TIMEOUT_MS = 3_000

Reply = TypeVar("Reply")
ServicerT = TypeVar("ServicerT", bound="Answers")
Context = grpc.aio.ServicerContext[Any, Any]


class Refusal(Exception):
    """An answer that is an error: a status code and a sentence."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def answers(
    method: Callable[[ServicerT, Any, Context], Awaitable[Reply]],
) -> Callable[[ServicerT, Any, Context], Awaitable[Reply]]:
    """Turn the package's own errors into gRPC statuses."""

    @functools.wraps(method)
    async def answer(self: ServicerT, request: Any, context: Context) -> Reply:
        try:
            return await method(self, request, context)
        except Refusal as refusal:
            if refusal.code is grpc.StatusCode.UNAVAILABLE:
                context.set_trailing_metadata(((INTERRUPTED_KEY, ""),))
            await context.abort(refusal.code, str(refusal))
        except LinkUnknown as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except LinkConflict as error:
            await context.abort(grpc.StatusCode.ALREADY_EXISTS, str(error))
        except MalformedZnode as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except DISCONNECTED as error:
            context.set_trailing_metadata(((INTERRUPTED_KEY, ""),))
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"this site's ZooKeeper does not answer: {error!r}")

    return answer


def raising(answer: Callable[[Any, Context], Awaitable[Reply]]) -> Callable[[Any, Context], Awaitable[Reply]]:
    """An agent's answer that raises the package's own errors, for an answer that consists of others
    and turns their errors into one status: a call can be aborted once.
    """
    bound: Any = answer
    return functools.partial(bound.__wrapped__, bound.__self__)


class AgentParts(Struct, frozen=True, kw_only=True):
    """The parts of a started agent."""

    zookeeper: ZooKeeper
    cache: SiteCache
    store: LinksStore
    brokers: OwnBrokers
    peers: PeerWatch
    judge: ProtectionJudge
    equality: EqualityWatch
    arbiter: Arbiter
    leases: LeaseKeeper
    failovers: FailoverWatch
    rehearsals: Rehearsals
    shared_access: SharedAccessStore


class Answers(SiteAgentServicer):
    """Answers about one subject; UNAVAILABLE until the host has started."""

    def __init__(self, site_name: str, clock: Clock) -> None:
        self._site = site_name
        self._clock = clock
        self._running: AgentParts | None = None
        self._state_change = state_change_logger()

    def run_with(self, parts: AgentParts | None) -> None:
        """Answer requests with these parts from now on; None stops answering."""
        self._running = parts

    @property
    def _parts(self) -> AgentParts:
        if self._running is None:
            raise Refusal(grpc.StatusCode.UNAVAILABLE, f"the agent of site {self._site} is not ready")
        return self._running

    def _overlaps(self, record: LinkRecord) -> list[str]:
        """The problems of a link beside the other links of this site."""
        cache = self._parts.cache
        links, topics = cache.facts.links.values(), cache.topic_names
        return [
            *overlap_problems(record, site=self._site, links=links, topics=topics),
            *automatic_problems(record, site=self._site, links=links, topics=topics),
        ]


def refuse_argument(problems: list[str]) -> NoReturn:
    """Refuse a request whose fields are wrong, with one sentence for each."""
    raise Refusal(grpc.StatusCode.INVALID_ARGUMENT, "; ".join(problems))
