"""The topics that one client may see; used by Metadata, whose responses are encoded by hand."""

from __future__ import annotations

from collections.abc import Iterable

from broker.authorization.authorizer import Authorizer, Check, topics
from broker.metadata.core.authorized_operations import NOT_ASKED
from broker.metadata.metadata_encoding import MetadataWriter
from broker.metadata.request_context import RequestContext
from wire.rules.acls import Operation, ResourceType


class ClientView:
    """Created for one request, whose context it keeps."""

    def __init__(self, authorizer: Authorizer, context: RequestContext) -> None:
        self._authorizer = authorizer
        self._context = context

    def described(self, names: Iterable[str]) -> list[str]:
        """Return the topics that the client may describe."""
        checks = topics(Operation.DESCRIBE, names)
        denied = self._authorizer.denied(self._context, checks, is_logged=False)
        return [check.name for check in checks if check not in denied]

    def may_describe(self, name: str) -> bool:
        """True if the client may describe the topic; a denial is logged."""
        return self._authorizer.may(self._context, Check(Operation.DESCRIBE, ResourceType.TOPIC, name))

    def may_create(self, name: str, *, is_logged: bool = True) -> bool:
        """True if the client may create the missing topic."""
        if self._authorizer.may_cluster(self._context, Operation.CREATE, is_logged=False):
            return True
        check = Check(Operation.CREATE, ResourceType.TOPIC, name)
        return self._authorizer.may(self._context, check, is_logged=is_logged)

    def cluster_operations(self) -> int:
        """The operations that the client may do on the cluster, as Metadata reports them."""
        return self._authorizer.operations(self._context, ResourceType.CLUSTER)

    def writer_for(self, writer: MetadataWriter, topic: str) -> MetadataWriter:
        """The writer of one topic, with the operations that the client may do with it, if the
        client asks.
        """
        if writer.topic_operations == NOT_ASKED:
            return writer
        operations = self._authorizer.operations(self._context, ResourceType.TOPIC, topic)
        return MetadataWriter(writer.version, topic_operations=operations, cluster_operations=writer.cluster_operations)
