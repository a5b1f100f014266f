"""Two of our private messages about access rules; `wire/protocol/messages/private.py` has the table
of all.

By `AccessChanges` the mirror of an exact link waits for a change of the access rules of the source:
ACLs, SCRAM users, client quotas and delegation tokens. The answer has a mark of the rules that the
broker has, and comes when this mark differs from that of the request, or at the end of the wait.
Marks of two brokers differ, and those of a broker before and after a restart do.
CLUSTER_AUTHORIZATION_FAILED without ClusterAction, or for a mirror of another link.

By `StandbyRules` the mirror writes ACLs, client quotas and configs of groups at the standby.
Kafka's own requests for these name no link: a mirror that does not know yet that its target has
been promoted would undo with them what operators change there. This request names the link and its
epoch, and the site's controller makes the changes only while the site is the link's standby at this
epoch. Errors: POLICY_VIOLATION where it is not, SECURITY_DISABLED for ACLs where the broker has no
authorizer, CLUSTER_AUTHORIZATION_FAILED and GROUP_AUTHORIZATION_FAILED without the right to make
the change, INVALID_CONFIG for a config that the site does not accept, NOT_CONTROLLER while no
controller answers, INVALID_REQUEST without a link. Entries before a refused one may have been
written.
"""

# Annotations stay real types here (no postponed evaluation): kio reads them from the dataclass
# fields.
from dataclasses import dataclass, field
from typing import ClassVar, Final

from kio.schema.errors import ErrorCode
from kio.schema.request_header.v2.header import RequestHeader
from kio.schema.response_header.v1.header import ResponseHeader
from kio.static.constants import EntityType
from kio.static.primitive import f64, i8, i16, i32

ACCESS_CHANGES: Final = 20020
STANDBY_RULES: Final = 20021


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChangesRequest:
    """Waits until the broker's access rules are others than those of the mark."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ACCESS_CHANGES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    mark: str = field(metadata={"kafka_type": "string"})
    """The mark of the last answer; empty for none."""
    max_wait_ms: i32 = field(metadata={"kafka_type": "int32"})
    """The longest wait for a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessChangesResponse:
    """The mark of the rules that the broker has."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(ACCESS_CHANGES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE unless the request is refused."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    """The reason of an error."""
    mark: str = field(metadata={"kafka_type": "string"})
    """The mark; empty with an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclToWrite:
    """One ACL to create or to delete."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(STANDBY_RULES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    resource_type: i8 = field(metadata={"kafka_type": "int8"})
    """This and the next fields as in CreateAcls."""
    resource_name: str = field(metadata={"kafka_type": "string"})
    resource_pattern_type: i8 = field(metadata={"kafka_type": "int8"})
    principal: str = field(metadata={"kafka_type": "string"})
    host: str = field(metadata={"kafka_type": "string"})
    operation: i8 = field(metadata={"kafka_type": "int8"})
    permission_type: i8 = field(metadata={"kafka_type": "int8"})
    is_removal: bool = field(metadata={"kafka_type": "bool"})
    """Whether the ACL is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntityToWrite:
    """A part of an entity."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(STANDBY_RULES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    entity_type: str = field(metadata={"kafka_type": "string"})
    """user, client-id or ip."""
    entity_name: str | None = field(metadata={"kafka_type": "string"})
    """Null is Kafka's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaToWrite:
    """One quota of an entity to set or to remove."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(STANDBY_RULES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    entity: tuple[QuotaEntityToWrite, ...]
    """Who the quota is for."""
    key: str = field(metadata={"kafka_type": "string"})
    """The name of the quota."""
    value: f64 = field(metadata={"kafka_type": "float64"})
    """The value to set."""
    is_removal: bool = field(metadata={"kafka_type": "bool"})
    """Whether the quota is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigToWrite:
    """One config of a group to set or to remove."""

    __type__: ClassVar = EntityType.nested
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(STANDBY_RULES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    group: str = field(metadata={"kafka_type": "string"})
    """The group."""
    name: str = field(metadata={"kafka_type": "string"})
    """The config's name."""
    value: str | None = field(metadata={"kafka_type": "string"})
    """The value; null removes the config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRulesRequest:
    """Writes rules in the name of a link's mirror."""

    __type__: ClassVar = EntityType.request
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(STANDBY_RULES)
    __header_schema__: ClassVar[type[RequestHeader]] = RequestHeader
    link: str = field(metadata={"kafka_type": "string"})
    """Name of the link."""
    link_epoch: i32 = field(metadata={"kafka_type": "int32"})
    """The link's epoch as the mirror knew it when it read the rules."""
    acls: tuple[AclToWrite, ...]
    """The ACLs."""
    quotas: tuple[QuotaToWrite, ...]
    """The client quotas."""
    group_configs: tuple[GroupConfigToWrite, ...]
    """The configs of groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRulesResponse:
    """What became of them."""

    __type__: ClassVar = EntityType.response
    __version__: ClassVar[i16] = i16(0)
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[i16] = i16(STANDBY_RULES)
    __header_schema__: ClassVar[type[ResponseHeader]] = ResponseHeader
    error_code: ErrorCode = field(metadata={"kafka_type": "error_code"})
    """NONE when all are written."""
    error_message: str | None = field(metadata={"kafka_type": "string"})
    """The reason of an error."""
