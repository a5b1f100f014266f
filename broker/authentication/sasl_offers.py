"""The SASL mechanisms that a listener offers to its clients, from its properties: mechanisms, users
of PLAIN, credentials of SCRAM.

A mechanism's line is `listener.name.{name}.{mechanism}.sasl.jaas.config`, the mechanism in lower
case. A broker's own user is in its line too, as in Kafka (`username` and `password`). SCRAM accepts
this user by that password until ZooKeeper has a credential for it: brokers with the same line
accept each other before there is anything in ZooKeeper, and the first administrator can log in as
this user.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Final

from broker.authentication.core.invented_credentials import CredentialForm, invented_salt, usual_form
from broker.authentication.core.oauth_bearer import OauthBearerExchange
from broker.authentication.core.sasl_login import SaslOffer
from broker.authentication.core.sasl_mechanisms import (
    OAUTHBEARER,
    PLAIN,
    Login,
    Mechanism,
    PlainExchange,
    ScramExchange,
)
from broker.authentication.delegation_tokens import DelegationTokens
from runtime.configuration import ConfigurationError
from wire.identity.core.failed_logins import DELAY_MS, DELAY_MS_KEY
from wire.identity.token_checks import TokenKeys, read_token_check
from wire.rules.jaas import LoginModule, parse_jaas
from wire.rules.scram import (
    HASHES,
    ITERATIONS_MIN,
    SALT_BYTES,
    ScramCredential,
    credential_of,
    decode_credential,
    salted_password,
)
from wire.tls.settings import HIDDEN

ENABLED: Final = "sasl.enabled.mechanisms"
JAAS: Final = "sasl.jaas.config"
SESSION_MS: Final = "connections.max.reauth.ms"
INTER_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
MECHANISMS: Final = (PLAIN, *HASHES, OAUTHBEARER)
LOOKED_AT_MAX: Final = 1000
"""The number of stored credentials that show the usual form; reading more would delay clients."""
_USER_PREFIX: Final = "user_"
_NONCE_BYTES: Final = 24
_MODULES: Final = {PLAIN: "PlainLoginModule", **dict.fromkeys(HASHES, "ScramLoginModule")}
_ACCEPTED_LINES: Final = {
    PLAIN: 'PlainLoginModule required user_NAME="PASSWORD" ...;',
    **dict.fromkeys(HASHES, 'ScramLoginModule required; or with username="..." password="..."'),
}


class ScramUsers:
    """The site's SCRAM credentials and delegation tokens, as the newest image has them."""

    def __init__(self, tokens: DelegationTokens | None = None) -> None:
        self._stored: Mapping[str, Mapping[str, str]] = {}
        self._forms: dict[str, CredentialForm] = {}
        self.tokens = tokens or DelegationTokens()

    def take(self, stored: Mapping[str, Mapping[str, str]]) -> None:
        """Replace the credentials, by user and mechanism, in ZooKeeper's form."""
        self._stored = stored
        self._forms = {}

    def usual_form(self, mechanism: str) -> CredentialForm:
        """The form that most stored credentials of the mechanism have."""
        form = self._forms.get(mechanism)
        if form is None:
            having = (name for name, credentials in self._stored.items() if mechanism in credentials)
            found = (self._credential({}, mechanism, name) for name in islice(having, LOOKED_AT_MAX))
            form = self._forms[mechanism] = usual_form(one for one in found if one is not None)
        return form

    @property
    def stored(self) -> Mapping[str, Mapping[str, str]]:
        """The credentials by user and mechanism, in ZooKeeper's form."""
        return self._stored

    def login(
        self, own: Mapping[str, ScramCredential], mechanism: str, name: str, is_token: bool
    ) -> tuple[ScramCredential, Login] | None:
        """The credential of a user (or of a delegation token whose id is the name), and the login
        that it gives. `own` are the credentials of the login lines, by name.
        """
        if is_token:
            found = self.tokens.credential(mechanism, name)
            if found is None:
                return None
            token = found.token
            # a session ends with the token's expiry or with its maximum lifetime, whichever is
            # first (KIP-48)
            expires_at_ms = min(token.expires_at_ms, token.ends_at_ms)
            return found.credential, Login(token.owner.name, expires_at_ms, is_by_token=True)
        credential = self._credential(own, mechanism, name)
        return None if credential is None else (credential, Login(name))

    def _credential(self, own: Mapping[str, ScramCredential], mechanism: str, name: str) -> ScramCredential | None:
        # credentials in ZooKeeper override the one in the file, so an administrator can replace it
        text = self._stored.get(name, {}).get(mechanism)
        if text is None:
            return own.get(name)
        try:
            return decode_credential(text)
        except ValueError:  # a value that another program wrote and that is no credential
            return None


def read_sasl_offer(properties: Mapping[str, str], users: ScramUsers, tokens: TokenKeys) -> SaslOffer:
    """The offer of a listener with these properties, without its prefix. ConfigurationError repeats
    nothing secret.
    """
    enabled = [name.strip() for name in properties.get(ENABLED, "").split(",") if name.strip()]
    if not enabled:
        raise ConfigurationError(ENABLED, "(not set)", f"accepted: one or more of {', '.join(MECHANISMS)}")
    unknown = next((name for name in enabled if name not in MECHANISMS), None)
    if unknown is not None:
        raise ConfigurationError(ENABLED, unknown, f"accepted: {', '.join(MECHANISMS)}")
    return SaslOffer(
        mechanisms={name: _mechanism(name, properties, users, tokens) for name in enabled},
        session_ms_max={name: _milliseconds(properties, name, SESSION_MS, 0) for name in enabled},
        failure_delay_ms=_milliseconds(properties, "", DELAY_MS_KEY, DELAY_MS),
        token_deriving=users.tokens.deriving,
    )


def of_mechanism(properties: Mapping[str, str], mechanism: str, key: str) -> tuple[str, str | None]:
    """The key and value for a mechanism: the mechanism's own key if it is set, else the key for all
    mechanisms.
    """
    own = f"{mechanism.lower()}.{key}"
    return (own, properties[own]) if own in properties else (key, properties.get(key))


def login_line(properties: Mapping[str, str], mechanism: str) -> LoginModule:
    """The login module of a mechanism. ConfigurationError."""
    key, line = of_mechanism(properties, mechanism, JAAS)
    module = None if line is None else parse_jaas(line)
    if module is None or module.name != _MODULES[mechanism]:
        own = f"{mechanism.lower()}.{JAAS}" if line is None else key
        given = "(not set)" if line is None else HIDDEN
        raise ConfigurationError(own, given, f"accepted: {_ACCEPTED_LINES[mechanism]}")
    return module


def plain_passwords(properties: Mapping[str, str]) -> dict[str, str]:
    """The passwords of a listener's PLAIN users, by name; empty if it does not offer PLAIN."""
    if PLAIN not in (name.strip() for name in properties.get(ENABLED, "").split(",")):
        return {}
    return _passwords(login_line(properties, PLAIN).options)


def _passwords(options: Mapping[str, str]) -> dict[str, str]:
    return {key.removeprefix(_USER_PREFIX): value for key, value in options.items() if key.startswith(_USER_PREFIX)}


def _mechanism(
    name: str, properties: Mapping[str, str], users: ScramUsers, tokens: TokenKeys
) -> Callable[[], Mechanism]:
    if name == OAUTHBEARER:
        return partial(OauthBearerExchange, _token_check(properties, tokens))
    options = login_line(properties, name).options
    if name == PLAIN:
        return partial(PlainExchange, _passwords(options))
    look_up = partial(users.login, _own_credential(name, options))
    # an unknown name must get the same salt each time, and from each broker where brokers share a
    # secret
    secret = users.tokens.derived_secret(b"salts of unknown names") or secrets.token_bytes(32)

    def invent(user: str, is_token: bool) -> tuple[bytes, int]:
        # brokers make the credentials of tokens and of their own user themselves
        form = CredentialForm() if is_token else users.usual_form(name)
        return invented_salt(name, user, secret=secret, form=form), form.iterations

    def begin() -> Mechanism:
        return ScramExchange(name, look_up, nonce=secrets.token_urlsafe(_NONCE_BYTES), invent=invent)

    return begin


def _token_check(properties: Mapping[str, str], tokens: TokenKeys) -> Callable[[str], Login]:
    """A function that checks a token by the listener's keys and rules, and returns its login."""
    check = read_token_check(lambda key: of_mechanism(properties, OAUTHBEARER, key)[1], tokens)
    return lambda token: Login(*check(token))


def _own_credential(mechanism: str, options: Mapping[str, str]) -> dict[str, ScramCredential]:
    user, password = options.get("username"), options.get("password")
    if not user or not password:
        return {}
    salt = secrets.token_bytes(SALT_BYTES)
    # computed once for each start: the password itself is not kept
    salted = salted_password(mechanism, password, salt, ITERATIONS_MIN)
    return {user: credential_of(mechanism, salted, salt=salt, iterations=ITERATIONS_MIN)}


def _milliseconds(properties: Mapping[str, str], mechanism: str, key: str, default: int) -> int:
    found, text = of_mechanism(properties, mechanism, key) if mechanism else (key, properties.get(key))
    if text is None or not text.strip():
        return default
    if not text.strip().isdecimal():
        raise ConfigurationError(found, text, "accepted: a whole number, 0 or more")
    return int(text)
