"""The rules of the table of rights (`table.py`), and the code that applies them before a handler
sees the request.

A request that is denied as a whole is answered with the error of its resource type. Denied entries
are removed from the request and answered with that error, next to the handler's results for the
others; a handler therefore never sees a denied entry. Entries that a client may not describe are
removed from lists. The first two use `error_response`, which fills the response from the request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer, Check
from broker.metadata.core.authorized_operations import NOT_ASKED
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.request_context import RequestContext
from broker.network.error_responses import error_response
from wire.rules.acls import Operation, ResourceType

ERRORS: Final = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    ResourceType.DELEGATION_TOKEN: ErrorCode.delegation_token_authorization_failed,
    ResourceType.USER: ErrorCode.cluster_authorization_failed,
}
"""The error for a client whose principal may not do an operation on a resource of the type."""

Handle = Callable[[Any], Awaitable[Any]]
EntryCheck = Callable[[Any, Any, ClusterImage], Check | None]
"""Maps an entry, its request and the image to the right that the entry needs; None if it needs
none.
"""


class Whole(Struct, frozen=True):
    """The request as a whole needs one of these rights, or with `needs_all` all of them; without
    checks it needs none. The error is that of the first right.
    """

    checks: Callable[[Any], tuple[Check, ...]]
    needs_all: bool = False


class Each(Struct, frozen=True):
    """Each entry of the field `entries` needs a right; refusals are added to the response's field
    `results`. `exempt`: a client with this right is not checked for single entries, unless it is a
    mirror that is limited to its links. `is_all_when_empty`: an empty field means "all", so the
    handler must not see the field empty. `message`: Apache Kafka's message beside the error; None
    if it sends none.
    """

    entries: str
    results: str
    check: EntryCheck
    exempt: Callable[[Any], Check | None] = lambda _: None
    is_all_when_empty: bool = False
    message: str | None = None


class Shown(Struct, frozen=True):
    """Entries of the response's field `results` that the client may not describe are removed. A
    client with the right `exempt` on the cluster sees all entries.
    """

    results: str
    check: Callable[[Any], Check]
    exempt: Operation | None = None


class Operations(Struct, frozen=True):
    """The response's entries in `results`, or the response itself if `results` is empty, get the
    authorized operations of their resource.
    """

    results: str
    resource_type: ResourceType
    name: Callable[[Any], str]
    field: str = "authorized_operations"


class After(Struct, frozen=True):
    """A function that removes entries that the client may not describe from a response."""

    change: Callable[[Authorizer, RequestContext, Any, Any], Any]


Rule = Whole | Each | Shown | Operations | After


async def answer_allowed(
    authorizer: Authorizer, context: RequestContext, request: Any, handle: Handle, rules: tuple[Rule, ...]
) -> Any:
    """The handler's response to the allowed entries, with refusals of the others; None if no
    response can express that the whole request is refused.
    """
    refused: dict[str, tuple[Any, ...]] = {}
    for rule in rules:
        if isinstance(rule, Whole):
            error = _refusal(authorizer, context, rule, rule.checks(request))
            if error is not ErrorCode.none:
                return error_response(context.api_key, context.api_version, request, error=error, must_say=False)
        elif isinstance(rule, Each) and getattr(request, rule.entries, None):
            asked = request
            request, results = _without_denied(authorizer, context, request, rule)
            if rule.is_all_when_empty and not getattr(request, rule.entries):
                error = ERRORS[ResourceType.TOPIC]
                return error_response(context.api_key, context.api_version, asked, error=error)
            refused[rule.results] = (*refused.get(rule.results, ()), *results)
    answer = await handle(request)
    for rule in rules:
        if isinstance(rule, Shown):
            answer = _without_hidden(authorizer, context, answer, rule)
        elif isinstance(rule, Operations):
            answer = _with_operations(authorizer, context, answer, rule)
        elif isinstance(rule, After):
            answer = rule.change(authorizer, context, request, answer)
    for field, results in refused.items():
        if results and getattr(answer, "error_code", ErrorCode.none) is ErrorCode.none:
            answer = replace(answer, **{field: (*getattr(answer, field), *results)})
    return answer


def _refusal(authorizer: Authorizer, context: RequestContext, rule: Whole, checks: tuple[Check, ...]) -> ErrorCode:
    if not checks:
        return ErrorCode.none
    if rule.needs_all:
        is_allowed = not authorizer.denied(context, checks)
    else:
        is_allowed = any(authorizer.may(context, check, is_logged=check is checks[-1]) for check in checks)
    return ErrorCode.none if is_allowed else ERRORS[checks[0].resource_type]


def _without_denied(
    authorizer: Authorizer, context: RequestContext, request: Any, rule: Each
) -> tuple[Any, tuple[Any, ...]]:
    exempt = rule.exempt(request)
    is_limited = authorizer.mirror_scope(context) is not None
    if exempt is not None and not is_limited and authorizer.may(context, exempt, is_logged=False):
        return request, ()
    checked = [(entry, rule.check(entry, request, authorizer.image)) for entry in getattr(request, rule.entries)]
    denied = authorizer.denied(context, [check for _, check in checked if check is not None])
    if not denied:
        return request, ()
    results: list[Any] = []
    for error in dict.fromkeys(ERRORS[check.resource_type] for check in denied):
        entries = tuple(entry for entry, check in checked if check in denied and ERRORS[check.resource_type] is error)
        refusal = error_response(
            context.api_key, context.api_version, replace(request, **{rule.entries: entries}), error=error
        )
        results += [_with_message(result, rule.message) for result in getattr(refusal, rule.results)]
    kept = tuple(entry for entry, check in checked if check not in denied)
    return replace(request, **{rule.entries: kept}), tuple(results)


def _with_message(result: Any, message: str | None) -> Any:
    """Early versions of a response have no field for it."""
    return replace(result, error_message=message) if message and hasattr(result, "error_message") else result


def _without_hidden(authorizer: Authorizer, context: RequestContext, answer: Any, rule: Shown) -> Any:
    if rule.exempt is not None and authorizer.may_cluster(context, rule.exempt, is_logged=False):
        return answer
    entries = getattr(answer, rule.results)
    denied = authorizer.denied(context, [rule.check(entry) for entry in entries], is_logged=False)
    return replace(answer, **{rule.results: tuple(entry for entry in entries if rule.check(entry) not in denied)})


def _with_operations(authorizer: Authorizer, context: RequestContext, answer: Any, rule: Operations) -> Any:
    def filled(entity: Any) -> Any:
        if getattr(entity, rule.field, NOT_ASKED) == NOT_ASKED:
            return entity
        operations = authorizer.operations(context, rule.resource_type, rule.name(entity))
        return replace(entity, **{rule.field: type(getattr(entity, rule.field))(operations)})

    if not rule.results:
        return filled(answer)
    return replace(answer, **{rule.results: tuple(map(filled, getattr(answer, rule.results)))})
