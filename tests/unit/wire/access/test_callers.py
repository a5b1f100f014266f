"""The callers that certificates' names and tokens identify, for any content."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.access.core.callers import (
    SubjectRule,
    UnusableName,
    caller_of_certificate,
    caller_of_token,
    hash_of,
    parse_tokens,
    role_uri,
    token_line,
)
from wire.access.core.roles import Caller, Role

RULES = (SubjectRule(Role.BROKER, "CN=broker-[0-9]+,OU=kafka"), SubjectRule(Role.VIEWER, "CN=.*"))
names = st.from_regex(r"\A[A-Za-z0-9._@-]{1,100}\Z")


@given(names, st.sampled_from(Role))
def test_a_certificate_that_was_made_for_a_caller_names_it(name: str, role: Role) -> None:
    uris = ["spiffe://elsewhere/x", role_uri(role, name)]
    link = name.partition("@")[0] if role is Role.MIRROR else ""
    assert caller_of_certificate(uris, "CN=other", RULES) == Caller(name, role, link)


@given(st.lists(st.text(max_size=40) | st.builds("antipode://{}".format, st.text(max_size=30)), max_size=4), st.text())
def test_no_text_makes_a_caller_with_a_role_but_the_one_form(uris: list[str], subject: str) -> None:
    try:
        caller = caller_of_certificate(uris, subject)
    except UnusableName:
        return
    assert caller.role is None or f"antipode://{caller.role}/{caller.name}" in uris


@pytest.mark.parametrize(
    "uri",
    [
        "antipode://operator",
        "antipode://operator/",
        "antipode://superuser/ann",
        "antipode://Operator/ann",
        "ANTIPODE://operator/ann/../x",
        "antipode://operator/ann?x",
        "antipode://operator/a%00nn",
        "antipode://operator/ann\n",
        "antipode:///ann",
        "antipode://operator/" + "a" * 101,
    ],
)
def test_a_name_that_is_nearly_right_is_refused_and_not_mapped_by_its_subject(uri: str) -> None:
    with pytest.raises(UnusableName):
        caller_of_certificate([uri], "CN=broker-1,OU=kafka", RULES)


def test_a_certificate_with_two_names_is_refused() -> None:
    with pytest.raises(UnusableName, match="accepted is one"):
        caller_of_certificate([role_uri(Role.VIEWER, "a"), role_uri(Role.OPERATOR, "a")], "")


def test_subjects_are_matched_as_a_whole_and_the_first_rule_counts() -> None:
    assert caller_of_certificate([], "CN=broker-1,OU=kafka", RULES).role is Role.BROKER
    assert caller_of_certificate([], "CN=broker-1,OU=kafka,O=x", RULES).role is Role.VIEWER
    assert caller_of_certificate([], "OU=x,CN=broker-1,OU=kafka", RULES) == Caller("OU=x,CN=broker-1,OU=kafka", None)
    assert caller_of_certificate([], "") == Caller("(no subject)", None)


def test_a_mirror_acts_for_the_link_that_the_group_of_its_expression_matches() -> None:
    rules = (
        SubjectRule(Role.MIRROR, "CN=mirror-(?P<link>[^,]+),O=shop"),
        SubjectRule(Role.MIRROR, "CN=old"),
        SubjectRule(Role.OPERATOR, "CN=(?P<link>.*)"),
    )
    assert caller_of_certificate([], "CN=mirror-a-b,O=shop", rules).link == "a-b"
    assert caller_of_certificate([], "CN=old", rules) == Caller("CN=old", Role.MIRROR, "")
    assert caller_of_certificate([], "CN=ann", rules) == Caller("CN=ann", Role.OPERATOR, "")


def test_a_token_names_its_caller_and_no_other_does() -> None:
    callers = parse_tokens(
        f"# for dashboards\n\n{token_line('grafana', Role.VIEWER, 't1')}\n{token_line('cron', Role.OPERATOR, 't2')}\n"
    )
    assert caller_of_token("Bearer t1", callers) == Caller("grafana", Role.VIEWER)
    assert caller_of_token("bearer  t2 ", callers) == Caller("cron", Role.OPERATOR)
    for wrong in ("Bearer t3", "t1", "Basic t1", "Bearer", "Bearer ", "", f"Bearer {hash_of('t1')}"):
        assert caller_of_token(wrong, callers) is None, wrong


@given(st.text(), st.text())
def test_no_header_is_taken_for_another_token(header: str, token: str) -> None:
    found = caller_of_token(header, {hash_of(token): Caller("x", Role.VIEWER)})
    assert found is None or header[len("bearer ") :].strip() == token


@given(st.text(max_size=300))
def test_any_file_of_tokens_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        callers = parse_tokens(text)
    except UnusableName as error:
        assert "line " in str(error)  # noqa: PT017
        return
    assert all(caller.role is not None for caller in callers.values())


def test_one_token_for_two_callers_is_refused() -> None:
    with pytest.raises(UnusableName, match="line 2"):
        parse_tokens(f"{token_line('a', Role.VIEWER, 't')}\n{token_line('b', Role.OPERATOR, 't')}\n")
