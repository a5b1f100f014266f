"""The openssl commands of docs/security.md make certificates that a broker and a client can use."""

from __future__ import annotations

import re
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from broker.settings.loading import load_broker_settings
from wire.identity.core.distinguished_names import subject_of

pytestmark = pytest.mark.integration

PAGE = Path(__file__).parents[3] / "docs" / "security.md"


def test_the_page_s_certificates_and_its_properties_are_usable(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    text = PAGE.read_text()
    (commands,) = re.findall(r"```bash\n(mkdir -p certificates.*?)```", text, re.DOTALL)
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True)
    made = tmp_path / "certificates"
    for properties in re.findall(r"```properties\n(.*?)```", text, re.DOTALL):
        if not properties.startswith("listeners="):
            continue  # of the control plane
        lines = properties.replace("/etc/antipode", str(made)).splitlines()
        given = dict(line.split("=", 1) for line in lines)
        given |= {"node.id": "1", "log.dirs": str(tmp_path), "zookeeper.connect": "z:1"}
        load_broker_settings(given)
    alice = ssl.PEM_cert_to_DER_cert((made / "alice.crt").read_text())
    assert subject_of(alice) == "CN=alice,O=example"
    ssl.create_default_context(cafile=str(made / "ca.pem")).load_cert_chain(made / "alice.pem")
