"""The digests of this site's access rules and of the configs of the topics and groups that a link
carries, as this broker's image has them.

A planned move compares them with those that the mirror has carried. They are given only while the
link is fenced in this image and this site is its active one: the controller refuses changes then,
and the image has every change that came before the fence. An image's rules are digested once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.core.group_configs import GROUP_CONFIGS as GROUP_DEFINITIONS
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.access_digests import (
    ACLS,
    GROUP_CONFIGS,
    QUOTAS,
    TOKENS,
    TOPIC_CONFIGS,
    USERS,
    AccessDigests,
    acls_digest,
    group_configs_digest,
    quotas_digest,
    tokens_digest,
    topic_configs_digest,
    users_digest,
)
from wire.rules.acls import Acl
from wire.rules.links import SiteRole, carries_group, carries_topic, role_of
from wire.rules.topic_configs import TOPIC_CONFIGS as TOPIC_DEFINITIONS
from wire.znodes.token_znodes import encode_token


class SiteAccess:
    """The digests of one broker's site. Without an authorizer a broker shows neither ACLs nor SCRAM
    users nor delegation tokens, so there is nothing to carry.
    """

    def __init__(self, image: Callable[[], ClusterImage], *, has_authorizer: bool, has_tokens: bool = False) -> None:
        self._image = image
        self._has_authorizer = has_authorizer
        self._has_tokens = has_authorizer and has_tokens
        self._digested: dict[str, tuple[ClusterImage, AccessDigests]] = {}

    def fenced_digests(self, link: LinkRecord) -> AccessDigests | None:
        """The digests under the fence of the link; None while this site is not fenced under it."""
        image = self._image()
        if role_of(link, image.site) is not SiteRole.FENCED:
            self._digested.pop(link.name, None)
            return None
        known = self._digested.get(link.name)
        if known is None or not _has_same_rules(known[0], image):
            known = self._digested[link.name] = image, self._digests(image, link)
        return known[1]

    def _digests(self, image: ClusterImage, link: LinkRecord) -> AccessDigests:
        quotas = ((entity, key, value) for entity, values in image.quotas.items() for key, value in values.items())
        topics = {name: topic.configs for name, topic in image.topics.items() if carries_topic(link, name)}
        groups = {name: own for name, own in image.group_configs.items() if carries_group(link, name)}
        found = {
            QUOTAS: quotas_digest(quotas),
            TOPIC_CONFIGS: topic_configs_digest(_described(topics, TOPIC_DEFINITIONS)),
            GROUP_CONFIGS: group_configs_digest(_described(groups, GROUP_DEFINITIONS)),
        }
        if self._has_authorizer:
            found[ACLS] = acls_digest(
                Acl(pattern, entry) for pattern, entries in image.acls.items() for entry in entries
            )
            found[USERS] = users_digest(
                (name, mechanism, credential)
                for name, credentials in image.scram_users.items()
                for mechanism, credential in credentials.items()
            )
        if self._has_tokens:
            found[TOKENS] = tokens_digest(
                (token_id, encode_token(token).decode()) for token_id, token in image.delegation_tokens.items()
            )
        return found


def _described(configs: Mapping[str, Mapping[str, str]], definitions: Container[str]) -> dict[str, dict[str, str]]:
    """The configs as DescribeConfigs shows them: a name that another tool has written, and that
    brokers do not know, is left out.
    """
    return {
        name: {key: value for key, value in own.items() if key in definitions} for name, own in configs.items() if own
    }


def _has_same_rules(known: ClusterImage, image: ClusterImage) -> bool:
    return (
        known.acls is image.acls
        and known.scram_users is image.scram_users
        and known.quotas is image.quotas
        and known.delegation_tokens is image.delegation_tokens
        and known.topics is image.topics
        and known.group_configs is image.group_configs
    )
