"""The text of principals."""

import pytest

from wire.rules.principals import ANONYMOUS, Principal, parse_principal


def test_a_principal_is_written_as_type_and_name() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert parse_principal("User:alice") == Principal("User", "alice")


def test_a_name_may_contain_colons() -> None:
    assert parse_principal("User:CN=a:b,O=c") == Principal("User", "CN=a:b,O=c")


@pytest.mark.parametrize("text", ["alice", ":alice", "User:", ""])
def test_a_text_of_another_form_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match="User:name"):
        parse_principal(text)
