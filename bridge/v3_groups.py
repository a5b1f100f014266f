"""API v3 of consumer groups: groups, their members and assignments, and their lag."""

from __future__ import annotations

from typing import Any

from confluent_kafka import ConsumerGroupState
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bridge.core.refusals import resource_not_found
from bridge.core.v3_resources import Document, Lag, Resources
from bridge.gate import caller_of
from bridge.parts import Parts, number_in_path
from bridge.v3_cluster import CLUSTER, answer_v3, resources_of

_GROUP = f"{CLUSTER}/consumer-groups/{{group}}"
_CONSUMER = f"{_GROUP}/consumers/{{consumer}}"
_PLACE = "{topic}/partitions/{partition}"


class V3Groups:
    """The handlers."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def routes(self) -> list[Route]:
        """The routes of these handlers."""
        return [
            Route(f"{CLUSTER}/consumer-groups", self.groups),
            Route(_GROUP, self.group),
            Route(f"{_GROUP}/consumers", self.consumers),
            Route(_CONSUMER, self.consumer),
            Route(f"{_CONSUMER}/assignments", self.assignments),
            Route(f"{_CONSUMER}/assignments/{_PLACE}", self.assignment),
            Route(f"{_GROUP}/lag-summary", self.lag_summary),
            Route(f"{_GROUP}/lags", self.lags),
            Route(f"{_GROUP}/lags/{_PLACE}", self.lag),
        ]

    async def groups(self, request: Request) -> Response:
        """All groups."""
        make, _ = await resources_of(self._parts, request)
        described = await caller_of(request).user.admin.describe_groups(await caller_of(request).user.admin.groups())
        items = [_group(make, group) for group in described]
        return answer_v3(make.collection("ConsumerGroup", ("consumer-groups",), items))

    async def group(self, request: Request) -> Response:
        """One group."""
        make, group = await self._found(request)
        return answer_v3(_group(make, group))

    async def consumers(self, request: Request) -> Response:
        """The members of a group."""
        make, group = await self._found(request)
        items = [_consumer(make, group, member) for member in group.members]
        return answer_v3(make.collection("Consumer", ("consumer-groups", group.group_id, "consumers"), items))

    async def consumer(self, request: Request) -> Response:
        """One member."""
        make, group = await self._found(request)
        return answer_v3(_consumer(make, group, _member(group, request)))

    async def assignments(self, request: Request) -> Response:
        """The partitions of a member."""
        make, group = await self._found(request)
        member = _member(group, request)
        items = [
            make.assignment(group.group_id, member.member_id, place.topic, place.partition) for place in _held(member)
        ]
        path = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
        return answer_v3(make.collection("ConsumerAssignment", path, items))

    async def assignment(self, request: Request) -> Response:
        """One partition that is assigned to a member."""
        make, group = await self._found(request)
        member, wanted = _member(group, request), _place(request)
        if wanted not in {(place.topic, place.partition) for place in _held(member)}:
            raise resource_not_found(f"Assignment {wanted[0]}-{wanted[1]}")
        return answer_v3(make.assignment(group.group_id, member.member_id, *wanted))

    async def lag_summary(self, request: Request) -> Response:
        """The largest lag of a group, and the sum."""
        make, group = await self._found(request)
        lags = await self._lags(request, group)
        if not lags:
            raise resource_not_found(f"Lag of consumer group {group.group_id}")
        return answer_v3(make.lag_summary(group.group_id, lags))

    async def lags(self, request: Request) -> Response:
        """The lag of a group in every partition that it has read."""
        make, group = await self._found(request)
        items = [make.lag(group.group_id, lag) for lag in await self._lags(request, group)]
        return answer_v3(make.collection("ConsumerLag", ("consumer-groups", group.group_id, "lags"), items))

    async def lag(self, request: Request) -> Response:
        """The lag in one partition."""
        make, group = await self._found(request)
        wanted = _place(request)
        for lag in await self._lags(request, group):
            if (lag.topic, lag.partition) == wanted:
                return answer_v3(make.lag(group.group_id, lag))
        raise resource_not_found(f"Lag of {group.group_id} in {wanted[0]}-{wanted[1]}")

    async def _found(self, request: Request) -> tuple[Resources, Any]:
        make, _ = await resources_of(self._parts, request)
        name = request.path_params["group"]
        (group,) = await caller_of(request).user.admin.describe_groups([name])
        if group.state is ConsumerGroupState.DEAD:
            raise resource_not_found(f"Consumer group {name}")
        return make, group

    async def _lags(self, request: Request, group: Any) -> list[Lag]:
        committed = await caller_of(request).user.admin.committed(group.group_id)
        ends = await caller_of(request).user.admin.ends(sorted(committed))
        readers = {(place.topic, place.partition): member for member in group.members for place in _held(member)}
        return [_lag(place, committed[place], end, readers.get(place)) for place, end in sorted(ends.items())]


def _held(member: Any) -> list[Any]:
    return list(member.assignment.topic_partitions) if member.assignment is not None else []


def _group(make: Resources, group: Any) -> Document:
    return make.group(
        group.group_id,
        is_simple=bool(group.is_simple_consumer_group),
        assignor=group.partition_assignor or "",
        state=group.state.name,
        coordinator=None if group.coordinator is None else group.coordinator.id,
    )


def _consumer(make: Resources, group: Any, member: Any) -> Document:
    instance = member.group_instance_id
    return make.consumer(group.group_id, member=member.member_id, instance=instance, client=member.client_id)


def _lag(place: tuple[str, int], committed: int, end: int, reader: Any) -> Lag:
    topic, partition = place
    return Lag(
        topic=topic,
        partition=partition,
        current_offset=committed,
        log_end_offset=end,
        member="" if reader is None else reader.member_id,
        client="" if reader is None else reader.client_id,
        instance=None if reader is None else reader.group_instance_id,
    )


def _member(group: Any, request: Request) -> Any:
    wanted = request.path_params["consumer"]
    for member in group.members:
        if member.member_id == wanted:
            return member
    raise resource_not_found(f"Consumer {wanted}")


def _place(request: Request) -> tuple[str, int]:
    return request.path_params["topic"], number_in_path(request, "partition")
