"""AlterUserScramCredentials: forwarded to the active controller, which stores credentials and sends
them to every broker.

Behaviour: each user has a separate result, as in Apache Kafka; the answer is sent when the live
brokers have received the change. The client sends a salted password, never the password. A standby
hands the request on to the active site (`broker/site/followed_site.py`), and answers
POLICY_VIOLATION for each user if that site does not answer. Versions: 0.
"""

from __future__ import annotations

from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.site.active_site import ActiveSite
from broker.site.followed_site import Rules, ask_followed_site
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable
from wire.rules.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_NUMBERS, credential_of, encode_credential

API_KEY = 51
MIN_VERSION = 0
MAX_VERSION = 0

_MECHANISMS: Final = {number: name for name, number in MECHANISM_NUMBERS.items()}
_Outcome = tuple[ErrorCode, str | None]
_UNACCEPTABLE: Final = ErrorCode.unacceptable_credential


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    active_site: ActiveSite
    cluster: Cluster
    controller: ControllerClient


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AlterUserScramCredentials request."""
    build = builder(API_KEY, context.api_version)
    followed = await ask_followed_site(doors.active_site, doors.cluster.image, context, request, Rules.USERS)
    if followed.answer is not None:
        return followed.answer
    named = [(entry.name, int(entry.mechanism)) for entry in (*request.deletions, *request.upsertions)]
    outcomes: dict[str, _Outcome] = {}
    changes: dict[str, pb.ScramUserChange] = {}
    for entry in (*request.deletions, *request.upsertions):
        refusal = _refusal(entry)
        if named.count((entry.name, int(entry.mechanism))) > 1:
            mechanism = _MECHANISMS.get(int(entry.mechanism), int(entry.mechanism))
            message = f"the request names {mechanism} of user {entry.name} more than once; accepted is once"
            refusal = (ErrorCode.duplicate_resource, message)
        if refusal is not None:
            outcomes[entry.name] = refusal
            continue
        if followed.refusal:
            outcomes[entry.name] = (ErrorCode.policy_violation, followed.refusal)
            continue
        _add(changes.setdefault(entry.name, pb.ScramUserChange(name=entry.name)), entry)
    wanted = [change for name, change in changes.items() if name not in outcomes]
    outcomes |= await _alter(doors, wanted)
    results = (
        build.part("AlterUserScramCredentialsResult", user=name, error_code=error, error_message=message)
        for name, (error, message) in ((name, outcomes[name]) for name in dict.fromkeys(name for name, _ in named))
    )
    return build.response(results=tuple(results))


async def _alter(doors: Doors, wanted: list[pb.ScramUserChange]) -> dict[str, _Outcome]:
    if not wanted:
        return {}
    try:
        reply = await doors.controller.alter_scram_users(pb.AlterScramUsersRequest(changes=wanted))
    except ControllerUnavailable as error:
        return {change.name: (error.code, str(error)) for change in wanted}
    return {
        change.name: (ErrorCode(result.error_code), result.error_message or None)
        for change, result in zip(wanted, reply.results, strict=True)
    }


def _refusal(entry: Any) -> _Outcome | None:
    if not entry.name:
        return _UNACCEPTABLE, "the name of the user is empty; accepted is any other name"
    if int(entry.mechanism) not in _MECHANISMS:
        accepted = " and ".join(f"{number} ({name})" for number, name in _MECHANISMS.items())
        message = f"mechanism {int(entry.mechanism)} of user {entry.name}; accepted are {accepted}"
        return ErrorCode.unsupported_sasl_mechanism, message
    iterations = getattr(entry, "iterations", ITERATIONS_MIN)
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        message = f"iterations={iterations} of user {entry.name}; accepted is {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        return _UNACCEPTABLE, message
    if not getattr(entry, "salt", b"x") or not getattr(entry, "salted_password", b"x"):
        return (
            _UNACCEPTABLE,
            f"user {entry.name} has an empty salt or salted password; accepted is at least a byte of each",
        )
    return None


def _add(change: pb.ScramUserChange, entry: Any) -> None:
    mechanism = _MECHANISMS[int(entry.mechanism)]
    if not hasattr(entry, "salted_password"):
        change.remove.append(mechanism)
        return
    credential = credential_of(
        mechanism, bytes(entry.salted_password), salt=bytes(entry.salt), iterations=entry.iterations
    )
    change.set[mechanism] = encode_credential(credential)
