"""Private messages: the claim that a mirror puts into an offset commit, and the versions that exist."""

from __future__ import annotations

import pytest

from wire import schemas
from wire.private import MIRROR_APPEND, MIRROR_OFFSET_COMMIT, SITE_METADATA, link_claim, parse_link_claim


@pytest.mark.parametrize(("link", "epoch"), [("a-b", 0), ("odd@name", 2**31 - 1)])
def test_link_claim_round_trips(link: str, epoch: int) -> None:
    assert parse_link_claim(link_claim(link, epoch)) == (link, epoch)


@pytest.mark.parametrize("claim", [None, "", "a-b", "@4", "a-b@", "a-b@-1", "a-b@x", "a-b@\u0664"])
def test_other_text_is_no_claim(claim: str | None) -> None:
    with pytest.raises(ValueError, match="accepted: link@epoch"):
        parse_link_claim(claim)


def test_borrowed_schemas_are_those_of_their_models() -> None:
    assert schemas.request_type(SITE_METADATA, 12) is schemas.request_type(3, 12)
    assert schemas.response_type(MIRROR_OFFSET_COMMIT, 9) is schemas.response_type(8, 9)


@pytest.mark.parametrize(("api_key", "version"), [(MIRROR_APPEND, 1), (SITE_METADATA, 11), (MIRROR_OFFSET_COMMIT, 7)])
def test_other_versions_do_not_exist(api_key: int, version: int) -> None:
    with pytest.raises(schemas.UnknownSchema):
        schemas.request_type(api_key, version)
