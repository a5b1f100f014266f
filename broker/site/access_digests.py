"""The digests of this site's access rules, as this broker's image has them.

A planned move compares them with those that the mirror has carried. They are given only while the
link is fenced in this image and this site is its active one: the controller refuses changes then,
and the image has every change that came before the fence. An image's rules are digested once.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metadata.core.cluster_image import ClusterImage
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.access_digests import (
    ACLS,
    QUOTAS,
    USERS,
    AccessDigests,
    acls_digest,
    quotas_digest,
    users_digest,
)
from wire.rules.acls import Acl
from wire.rules.links import SiteRole, role_of


class SiteAccess:
    """See the module. Without an authorizer a broker shows neither ACLs nor SCRAM users, so there
    is nothing to carry.
    """

    def __init__(self, image: Callable[[], ClusterImage], *, has_authorizer: bool) -> None:
        self._image = image
        self._has_authorizer = has_authorizer
        self._digested: tuple[ClusterImage, AccessDigests] | None = None

    def fenced_digests(self, link: LinkRecord) -> AccessDigests | None:
        """The digests under the fence of the link; None while this site is not fenced under it."""
        image = self._image()
        if role_of(link, image.site) is not SiteRole.FENCED:
            return None
        if self._digested is None or not _has_same_rules(self._digested[0], image):
            self._digested = image, self._digests(image)
        return self._digested[1]

    def _digests(self, image: ClusterImage) -> AccessDigests:
        quotas = ((entity, key, value) for entity, values in image.quotas.items() for key, value in values.items())
        found = {QUOTAS: quotas_digest(quotas)}
        if self._has_authorizer:
            found[ACLS] = acls_digest(
                Acl(pattern, entry) for pattern, entries in image.acls.items() for entry in entries
            )
            found[USERS] = users_digest(
                (name, mechanism, credential)
                for name, credentials in image.scram_users.items()
                for mechanism, credential in credentials.items()
            )
        return found


def _has_same_rules(known: ClusterImage, image: ClusterImage) -> bool:
    return known.acls is image.acls and known.scram_users is image.scram_users and known.quotas is image.quotas
