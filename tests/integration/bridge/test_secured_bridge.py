"""A bridge over TLS at a secured site: clients with a password, token or certificate act as their
Kafka users, and other clients are refused.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from cli.credentials.authority import load_authority, write_file
from cli.credentials.passwords import with_user
from runtime.addresses import HostPort, parse_host_port
from runtime.configuration import read_properties
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.embedded.http_bridge import BridgeClient, HttpBridge, Instance
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.token_signer import TokenSigner
from tests.support.processes.processes import Processes
from tests.support.security.hostile_tls import EndlessRecord, SlowHandshake, renegotiated, wrong_certificates
from tests.support.security.identities import Identities

pytestmark = pytest.mark.integration

HANDSHAKES = 600
HEALTH = b"GET /health HTTP/1.1\r\nhost: bridge\r\n\r\n"
OPEN: list[httpx.Client] = []
"""The clients of one test."""


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    yield
    while OPEN:
        OPEN.pop().close()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedSites]:
    """A secured site with its bridge; `user` may write to and read `orders`, by group `readers`."""
    starter = SitesStarter(tmp_path_factory.mktemp("secured"))
    try:
        found = starter("--sites", "a", "--no-link", "--no-proxy", "--bridge", "--secure")
        config = ("--command-config", found.document["security"]["command_config"])
        common = ("--bootstrap-server", found.bootstrap("a"), "--allow-principal", "User:user", "--topic", "orders")
        done(found, "topics", "create", "orders", "--bootstrap-server", found.bootstrap("a"), *config)
        done(found, "acls", "add", *common, "--producer", *config)
        done(found, "acls", "add", *common, "--consumer", "--group", "readers", *config)
        yield found
    finally:
        starter.end_all()


def done(sites: EmbeddedSites, *arguments: str) -> None:
    answer = sites.command(*arguments)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def password(sites: EmbeddedSites, user: str) -> str:
    return read_properties(sites.directory / "security" / "kafka.properties")[user]


def trusting(sites: EmbeddedSites, identity: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=sites.document["security"]["ca"])
    if identity is not None:
        context.load_cert_chain(identity)
    return context


def client(
    sites: EmbeddedSites,
    url: str = "",
    *,
    login: tuple[str, str] | None = None,
    token: str = "",
    identity: Path | None = None,
) -> BridgeClient:
    """A client with these credentials."""
    found = BridgeClient(url or sites.document["bridge"]["url"])
    found.http.close()
    headers = {"authorization": f"Bearer {token}"} if token else {}
    context = trusting(sites, identity)
    found.http = httpx.Client(
        base_url=found.url, timeout=60, trust_env=False, verify=context, auth=login, headers=headers
    )
    OPEN.append(found.http)
    return found


def produced(client: BridgeClient, topic: str) -> tuple[int, Any]:
    """The status of one record, its own error where it has one, or the offset."""
    answer = client.post(
        f"/topics/{topic}", {"records": [{"value": 1}]}, content_type="application/vnd.kafka.json.v2+json"
    )
    document = answer.json()
    if answer.status_code != 200:
        return answer.status_code, document["error_code"]
    (offset,) = document["offsets"]
    return answer.status_code, offset["error_code"]


def test_clients_of_the_embedded_bridge_act_as_the_kafka_users_of_their_names(sites: EmbeddedSites) -> None:
    admin, user = (client(sites, login=(name, password(sites, name))) for name in ("admin", "user"))
    hidden = admin.new_topic()
    assert produced(user, "orders") == (200, None)
    assert produced(admin, hidden) == (200, None)
    assert produced(user, hidden) == (403, 40301)
    refused = user.post(
        f"/v3/clusters/{admin.cluster.rpartition('/')[2]}/topics", {"topic_name": "no"}, content_type="application/json"
    )
    assert (refused.status_code, refused.json()["error_code"]) == (403, 40301)
    assert user.http.get("/topics").json() == ["orders"], "the rest is hidden from it"

    reader = user.instance("readers").subscribed("orders")
    assert reader.read_until(1)[0]["value"] == 1
    other = Instance(admin, reader.path)
    assert other.get("records").status_code == 404, "instances belong to their principals"
    assert admin.http.delete(reader.path).status_code == 404
    reader.delete()
    stranger = user.instance("others").subscribed("orders")
    eventually_sync(lambda: stranger.get("records").status_code == 403)


@pytest.mark.parametrize("login", [None, ("user", "wrong"), ("eve", "wrong"), ("user", "x" * 100)])
def test_without_the_right_password_a_request_is_answered_401(
    sites: EmbeddedSites, login: tuple[str, str] | None
) -> None:
    with client(sites, login=login).http as http:
        for path in ("/topics", "/v3/clusters"):
            refused = http.get(path)
            assert refused.status_code == 401
            assert refused.json()["error_code"] == 401
            assert refused.headers["www-authenticate"] == 'Basic realm="antipode"'
        assert http.get("/health").json()["status"] == "serving", "probes have no login"


def test_plaintext_and_half_a_handshake_are_refused_and_lock_no_client_out(sites: EmbeddedSites) -> None:
    url = sites.document["bridge"]["url"]
    with pytest.raises(httpx.HTTPError):
        httpx.get(url.replace("https", "http"), trust_env=False)
    with pytest.raises(httpx.ConnectError):
        httpx.get(url, trust_env=False)
    host, _, port = url.removeprefix("https://").rpartition(":")
    half_open = [socket.create_connection((host, int(port)), timeout=30) for _ in range(HANDSHAKES)]
    try:
        assert produced(client(sites, login=("user", password(sites, "user"))), "orders") == (200, None)
    finally:
        for connection in half_open:
            connection.close()


def place(url: str) -> HostPort:
    return parse_host_port(url.removeprefix("https://"))


def test_slow_and_endless_handshakes_leave_other_clients_served(sites: EmbeddedSites) -> None:
    address, login = place(sites.document["bridge"]["url"]), ("user", password(sites, "user"))
    with contextlib.ExitStack() as clients:
        slow = [clients.enter_context(SlowHandshake(address, trusting(sites))) for _ in range(20)]
        endless = clients.enter_context(EndlessRecord(address))
        for _ in range(5):
            for _ in range(20):
                assert all(one.send_byte() for one in slow)
            assert produced(client(sites, login=login), "orders") == (200, None)
        for one in slow:
            one.complete()
            assert one.ask(HEALTH).startswith(b"HTTP/1.1 200")
        eventually_sync(endless.is_closed_after_another_byte)
        assert produced(client(sites, login=login), "orders") == (200, None)


def test_renegotiation_is_refused_at_the_bridge(sites: EmbeddedSites) -> None:
    output = renegotiated(place(sites.document["bridge"]["url"]), Path(sites.document["security"]["ca"]))
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output or "alert" in output
    assert produced(client(sites, login=("user", password(sites, "user"))), "orders") == (200, None)


class Setting:
    """A bridge of a test's own, its files, and the authorities of its tokens and certificates."""

    def __init__(self, sites: EmbeddedSites, directory: Path) -> None:
        security = sites.directory / "security"
        self.directory = directory
        self.signer = TokenSigner(directory / "keys.json")
        self.authority = load_authority(security)
        self.users = directory / "users"
        self.users.write_text(with_user("", "alice", "alice's: password"))
        self.rules = directory / "rules.properties"
        self.set_rules(sites, {"staff": ("alice|anna", "user"), "partners": ("CN=partner-.*", "user")})
        self.properties = {
            "ssl.keystore.location": str(self.issue("bridge")),
            "ssl.truststore.location": str(security / "ca.pem"),
            "ssl.client.auth": "requested",
            "authentication.method": "BASIC,BEARER,SSL",
            "authentication.realm": "orders",
            "antipode.authentication.users.location": str(self.users),
            "antipode.impersonation.rules.location": str(self.rules),
            "sasl.oauthbearer.jwks.endpoint.url": (directory / "keys.json").as_uri(),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.sub.claim.name": "client",
            **{
                key: value
                for key, value in read_properties(sites.directory / "bridge" / "bridge.properties").items()
                if key.startswith("client.")
            },
        }

    def set_rules(self, sites: EmbeddedSites, rules: Mapping[str, tuple[str, str]]) -> None:
        """The rules: by name the expression and the Kafka user."""
        lines = [f"impersonation.rules={','.join(rules)}"]
        for name, (principals, user) in rules.items():
            lines.append(f"impersonation.{name}.principals={principals}")
            lines.append(f"impersonation.{name}.client.sasl.username={user}")
            lines.append(f"impersonation.{name}.client.sasl.password={password(sites, user)}")
        incoming = self.rules.with_suffix(".incoming")
        incoming.write_text("\n".join(lines) + "\n")
        incoming.replace(self.rules)

    def issue(self, name: str) -> Path:
        """A certificate of the sites' authority."""
        file = self.directory / f"{name}.pem"
        incoming = file.with_suffix(".incoming")
        write_file(incoming, self.authority.issue(common_name=name, uris=[], hosts=("127.0.0.1",)), mode=0o600)
        incoming.replace(file)
        return file


@pytest.fixture
def setting(sites: EmbeddedSites, tmp_path: Path) -> Setting:
    return Setting(sites, tmp_path)


@pytest.fixture
def start(sites: EmbeddedSites, processes: Processes, setting: Setting) -> Callable[..., HttpBridge]:
    def started(identity: Path | None = None, **more: str) -> HttpBridge:
        given = {**setting.properties, **{key.replace("_", "."): value for key, value in more.items()}}
        trusted = trusting(sites, identity)
        bridge = HttpBridge(processes, setting.directory / "bridge", sites.bootstrap("a"), trusted=trusted, **given)
        OPEN.append(bridge.http)
        return bridge

    return started


def test_password_token_and_certificate_each_let_in_and_replaced_files_count(
    sites: EmbeddedSites, setting: Setting, start: Callable[..., HttpBridge]
) -> None:
    bridge = start()
    alice = ("alice", "alice's: password")
    by_password = client(sites, bridge.url, login=alice)
    assert produced(by_password, "orders") == (200, None)
    assert produced(client(sites, bridge.url, token=setting.signer.token()), "orders") == (200, None)
    partner = setting.issue("partner-1")
    assert produced(client(sites, bridge.url, identity=partner), "orders") == (200, None)

    none = client(sites, bridge.url).http.get("/topics")
    assert none.status_code == 401
    assert none.headers.get_list("www-authenticate") == ['Basic realm="orders"', 'Bearer realm="orders"']
    for token in (setting.signer.token(exp=1000), setting.signer.token(aud="other"), "x.y.z"):
        assert client(sites, bridge.url, token=token).http.get("/topics").status_code == 401
    no_rule = client(sites, bridge.url, token=setting.signer.token(client="eve")).http.get("/topics")
    assert (no_rule.status_code, no_rule.json()["error_code"]) == (403, 40301)
    assert client(sites, bridge.url, identity=setting.issue("guest")).http.get("/topics").status_code == 403
    assert bridge.figure("kafka_users") == 2, "equal options share one user"
    assert bridge.figure("refused_logins_total") == 6

    setting.users.with_suffix(".incoming").write_text(with_user("", "alice", "another"))
    setting.users.with_suffix(".incoming").replace(setting.users)
    assert by_password.http.get("/topics").status_code == 401, "the connection is there, the password is not"
    assert client(sites, bridge.url, login=("alice", "another")).http.get("/topics").status_code == 200
    setting.set_rules(sites, {"all": (".*", "admin")})
    hidden = client(sites, bridge.url, identity=partner).new_topic()
    assert produced(client(sites, bridge.url, login=("alice", "another")), hidden) == (200, None)
    before = served_certificate(sites, bridge)
    setting.issue("bridge")
    assert served_certificate(sites, bridge) != before
    log = (setting.directory / "bridge" / "bridge.log").read_text()
    assert "outcome=denied" in log
    for secret in ("alice's: password", password(sites, "user"), password(sites, "admin")):
        assert secret not in log


def test_wrong_certificates_at_a_rate_leave_a_partner_served(
    sites: EmbeddedSites, setting: Setting, start: Callable[..., HttpBridge], tmp_path: Path
) -> None:
    partner = setting.issue("partner-1")
    bridge = start(ssl_client_auth="required", identity=partner)
    strangers = trusting(sites, Identities(tmp_path / "strangers").issue("partner-1"))
    with wrong_certificates(place(bridge.url), strangers, HEALTH) as storm:
        eventually_sync(lambda: storm.refused)
        for _ in range(10):
            assert produced(client(sites, bridge.url, identity=partner), "orders") == (200, None)
        eventually_sync(lambda: storm.refused >= 20)
    assert not storm.accepted


def served_certificate(sites: EmbeddedSites, bridge: HttpBridge) -> bytes:
    host, _, port = bridge.url.removeprefix("https://").rpartition(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        trusting(sites).wrap_socket(plain, server_hostname=host) as encrypted,
    ):
        certificate = encrypted.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_kafka_users_are_bounded_and_idle_ones_make_room(
    sites: EmbeddedSites, setting: Setting, start: Callable[..., HttpBridge]
) -> None:
    setting.set_rules(sites, {"first": ("one", "user"), "second": ("two", "admin")})
    bridge = start(**{"antipode.impersonation.users.max": "1", "antipode.admin.timeout.ms": "60000"})
    first, second = (client(sites, bridge.url, token=setting.signer.token(client=name)) for name in ("one", "two"))
    assert produced(first, "orders") == (200, None)
    # it waits until the idle one is closed
    assert second.http.get("/topics", timeout=120).status_code == 200
    assert bridge.figure("kafka_users") == 2


def test_wrong_passwords_at_a_rate_are_refused_and_clients_with_right_ones_go_on(
    sites: EmbeddedSites, setting: Setting, start: Callable[..., HttpBridge]
) -> None:
    limits = {"antipode.failed.logins.max": "10", "connection.failed.authentication.delay.ms": "0"}
    bridge = start(**limits)
    alice = client(sites, bridge.url, login=("alice", "alice's: password"))
    assert alice.http.get("/topics").status_code == 200
    guessing = client(sites, bridge.url, login=("alice", "a guess"))
    answers = [guessing.http.get("/topics").status_code for _ in range(15)]
    assert answers == [401] * 11 + [429] * 4
    assert bridge.figure("refused_addresses") == 1
    assert alice.http.get("/topics").status_code == 200
    assert client(sites, bridge.url, token=setting.signer.token()).http.get("/topics").status_code == 200


def test_a_kafka_user_with_a_wrong_password_is_reported_and_locks_no_client_out(
    sites: EmbeddedSites, setting: Setting, start: Callable[..., HttpBridge]
) -> None:
    rules = setting.rules.read_text().replace("impersonation.rules=staff", "impersonation.rules=broken,staff")
    rules += "impersonation.broken.principals=broken\nimpersonation.broken.client.sasl.password=wrong\n"
    setting.rules.write_text(rules)
    bridge = start(**{"antipode.admin.timeout.ms": "2000"})
    broken = client(sites, bridge.url, token=setting.signer.token(client="broken")).http.get("/topics")
    assert (broken.status_code, broken.json()["error_code"]) == (401, 40101), broken.text
    assert produced(client(sites, bridge.url, token=setting.signer.token()), "orders") == (200, None)
    assert json.loads(broken.text)["message"]
