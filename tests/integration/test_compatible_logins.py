"""The rows of the page about logins, as `make compatibility` tries them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compatibility.cells import Outcome
from tests.compatibility.security.clients import clients
from tests.compatibility.security.matrix import run_client
from tests.compatibility.security.secured_client import SecuredClient
from tests.compatibility.security.site import SecuredSite, secured_site

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredSite]:
    """One broker, ended with the module."""
    with secured_site(tmp_path_factory.mktemp("logins")) as started:
        yield started


@pytest.mark.parametrize("client", clients(), ids=[client.name for client in clients()])
def test_right_credentials_are_taken_and_wrong_ones_refused(client: SecuredClient, site: SecuredSite) -> None:
    if client.missing():
        pytest.skip(client.missing())
    failed = {
        mechanism: cell["detail"]
        for mechanism, cell in run_client(client, site)["cells"].items()
        if cell["outcome"] != Outcome.PASSED
    }
    assert not failed, failed
