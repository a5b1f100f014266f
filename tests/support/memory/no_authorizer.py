"""The authorizer of a broker without `authorizer.class.name`: it allows everything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Final

from broker.authorization.authorizer import Authorizer
from broker.metadata.core.cluster_image import ClusterImage

NO_AUTHORIZER: Final = Authorizer(
    SimpleNamespace(authorizer_class="", super_users=(), mirror_principals={}, allows_everyone_without_acl=False),  # type: ignore[arg-type]
    lambda: ClusterImage(site="a", node_id=1),
)
