"""Delegation tokens of a site: where ZooKeeper keeps them, and their messages inside the site.

Paths and JSON are those of Kafka's brokers with ZooKeeper: `/delegation_token/tokens/<id>`, and
notices of change below `/delegation_token/token_changes` that other tools leave. Neither the HMAC
nor the secret is stored. Source: KIP-48, `kafka.server.DelegationTokenManagerZk`.

Callers: the controller (storage, image), the broker's image and handlers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from wire.control.cluster_pb2 import DelegationToken as DelegationTokenMessage
from wire.protocol.json_documents import parse_json
from wire.rules.delegation_tokens import TIME_MS_MAX, DelegationToken
from wire.rules.principals import Principal, parse_principal
from wire.znodes.config_znodes import entity_name, entity_node
from wire.znodes.documents import MalformedZnode

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"  # noqa: S105  a path
TOKEN_PATHS: Final = (TOKENS, TOKEN_CHANGES)
"""Parents that must exist."""
_VERSION: Final = 3
_REQUESTER_SINCE: Final = 3
"""Nodes of older versions have no requester: the owner was it."""


def token_path(token_id: str) -> str:
    """The node of one token."""
    return f"{TOKENS}/{token_id}"


def encode_token(token: DelegationToken) -> bytes:
    """The node's content."""
    document = {
        "version": _VERSION,
        "owner": entity_node(str(token.owner)),
        "tokenRequester": entity_node(str(token.requester)),
        "renewers": [entity_node(str(renewer)) for renewer in token.renewers],
        "issueTimestamp": token.issued_at_ms,
        "maxTimestamp": token.ends_at_ms,
        "expiryTimestamp": token.expires_at_ms,
        "tokenId": token.token_id,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def decode_token(token_id: str, payload: bytes) -> DelegationToken:
    """A token from its node. MalformedZnode names what is wrong."""
    try:
        document = parse_json(payload)
        has_requester = _version(document, token_id) >= _REQUESTER_SINCE
        return DelegationToken(
            token_id=token_id,
            owner=_principal(document["owner"]),
            requester=_principal(document["tokenRequester" if has_requester else "owner"]),
            renewers=tuple(_principal(renewer) for renewer in document["renewers"]),
            issued_at_ms=_time(document["issueTimestamp"]),
            expires_at_ms=_time(document["expiryTimestamp"]),
            ends_at_ms=_time(document["maxTimestamp"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise MalformedZnode(token_path(token_id), f"not a delegation token: {error!r}") from error


def _version(document: Any, token_id: str) -> int:
    version = document["version"]
    if document["tokenId"] != token_id or not isinstance(version, int) or not 0 < version <= _VERSION:
        raise ValueError("another id, or a version that is not known")
    return version


def _principal(text: Any) -> Principal:
    if not isinstance(text, str):
        raise TypeError("principals are texts")
    return parse_principal(entity_name(text) or text)


def _time(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= TIME_MS_MAX:
        raise TypeError("times are whole numbers up to the end of the year 9999")
    return value


def token_message(token_id: str, token: DelegationToken | None) -> DelegationTokenMessage:
    """The message for an image, a change of it or a request; without a token it means that the
    token was removed.
    """
    if token is None:
        return DelegationTokenMessage(token_id=token_id)
    return DelegationTokenMessage(
        token_id=token_id,
        owner=str(token.owner),
        requester=str(token.requester),
        renewers=[str(renewer) for renewer in token.renewers],
        issued_at_ms=token.issued_at_ms,
        expires_at_ms=token.expires_at_ms,
        ends_at_ms=token.ends_at_ms,
    )


def token_from_message(message: DelegationTokenMessage) -> DelegationToken | None:
    """Decode the form in which processes of a site send it to each other; None if the token was
    removed. ValueError if the text is not a principal.
    """
    if not message.owner:
        return None
    return DelegationToken(
        token_id=message.token_id,
        owner=parse_principal(message.owner),
        requester=parse_principal(message.requester),
        renewers=tuple(map(parse_principal, message.renewers)),
        issued_at_ms=message.issued_at_ms,
        expires_at_ms=message.expires_at_ms,
        ends_at_ms=message.ends_at_ms,
    )


def merged_tokens(
    former: Mapping[str, DelegationToken], changed: Iterable[DelegationTokenMessage], *, is_full: bool
) -> Mapping[str, DelegationToken]:
    """All tokens by id after a change, or as a full image names them; the former object where
    nothing changed.
    """
    tokens = {} if is_full else dict(former)
    for message in changed:
        tokens.pop(message.token_id, None)
        token = token_from_message(message)
        if token is not None:
            tokens[message.token_id] = token
    return former if former == tokens else tokens
