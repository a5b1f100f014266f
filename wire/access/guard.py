"""Checks every call at a gRPC server: identifies the caller, checks its role, and audits changes.

`ControlGuard` is the only interceptor of a process's server. Without TLS every caller is anonymous
and may call every method; changes are audited in that case too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import grpc

from runtime.logs import get_logger
from runtime.security.audit import ALLOWED, DENIED, FAILED, audit
from wire.access.core.callers import SubjectRule, UnusableName, caller_of_certificate, caller_of_token
from wire.access.core.mirror_scope import narrow, scope_refusal
from wire.access.core.roles import ANONYMOUS, RULES, Caller, Decision, Role, Verdict, decide
from wire.access.core.subjects import subjects_of

if TYPE_CHECKING:
    from wire.access.credentials import Credentials

log = get_logger(__name__)

_CERTIFICATE: Final = "x509_pem_cert"
_CERTIFICATES_KEPT: Final = 1024
_CODES: Final = {
    Verdict.DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Verdict.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
}
Handler = Any


class ControlGuard(grpc.aio.ServerInterceptor):
    """Decides each call by `core/roles.py`, and those of mirrors by `core/mirror_scope.py` too."""

    def __init__(self, credentials: Credentials | None, rules: tuple[SubjectRule, ...] = ()) -> None:
        """`credentials` None: the control plane is plaintext."""
        self._credentials = credentials
        self._caller_by_certificate = lru_cache(_CERTIFICATES_KEPT)(lambda pem: _caller_of(pem, rules))

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], handler_call_details: Any
    ) -> Handler:
        """Put the check in front of the method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        token = next(
            (str(value) for key, value in handler_call_details.invocation_metadata or () if key == "authorization"), ""
        )
        if handler.response_streaming:
            return self._streaming(handler, method, token)
        return self._unary(handler, method, token)

    def _unary(self, handler: Handler, method: str, token: str) -> Handler:
        inner = handler.stream_unary if handler.request_streaming else handler.unary_unary

        async def checked(request: Any, context: Any) -> Any:
            caller = await self._admitted(method, token, request, context)
            reply = await _audited(caller, method, request, context, inner)
            narrow(caller, reply)
            return reply

        make = (
            grpc.stream_unary_rpc_method_handler if handler.request_streaming else grpc.unary_unary_rpc_method_handler
        )
        return make(checked, handler.request_deserializer, handler.response_serializer)

    def _streaming(self, handler: Handler, method: str, token: str) -> Handler:
        inner = handler.stream_stream if handler.request_streaming else handler.unary_stream

        async def checked(request: Any, context: Any) -> AsyncIterator[Any]:
            await self._admitted(method, token, request, context)
            async for reply in inner(request, context):
                yield reply

        make = (
            grpc.stream_stream_rpc_method_handler if handler.request_streaming else grpc.unary_stream_rpc_method_handler
        )
        return make(checked, handler.request_deserializer, handler.response_serializer)

    async def _admitted(self, method: str, token: str, request: Any, context: Any) -> Caller:
        """The caller of an accepted call; a refused call is aborted here."""
        if self._credentials is None:
            return ANONYMOUS
        self._credentials.connections.note_call(_text(context.peer()))
        caller, problem = self._caller(self._credentials, token, context)
        decision = decide(caller, method, problem=problem)
        out_of_scope = scope_refusal(caller, method, request) if decision.verdict is Verdict.ALLOWED else ""
        if out_of_scope:
            decision = Decision(Verdict.DENIED, out_of_scope)
        if decision.verdict is not Verdict.ALLOWED:
            _audit_refusal(caller, method, request, context, decision)
            await context.abort(_CODES[decision.verdict], decision.reason)
        return caller

    def _caller(self, credentials: Credentials, token: str, context: Any) -> tuple[Caller, str]:
        """The caller, and the reason if it is not known. A token has precedence over the
        certificate: several people may share a machine's certificate.
        """
        if token:
            caller = caller_of_token(token, credentials.callers())
            return (ANONYMOUS, "the token is not known") if caller is None else (caller, "")
        shown = context.auth_context().get(_CERTIFICATE)
        if not shown:
            return ANONYMOUS, ""
        try:
            return self._caller_by_certificate(bytes(shown[0])), ""
        except UnusableName as error:
            return ANONYMOUS, str(error)


def _caller_of(pem: bytes, rules: tuple[SubjectRule, ...]) -> Caller:
    """The caller by a certificate that the TLS handshake has verified. UnusableName."""
    # imported here, because the library is large and a plaintext process does not need it
    from cryptography import x509

    try:
        certificate = x509.load_pem_x509_certificate(pem)
        subject = certificate.subject.rfc4514_string()
        uris: list[str] = []
        for extension in certificate.extensions:
            if isinstance(extension.value, x509.SubjectAlternativeName):
                uris = extension.value.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.DuplicateExtension) as error:
        raise UnusableName(f"the certificate cannot be read ({error})") from error
    return caller_of_certificate(uris, subject, rules)


async def _audited(caller: Caller, method: str, request: Any, context: Any, inner: Callable[..., Any]) -> Any:
    rule = RULES.get(method)
    # A broker forwards requests of clients, and has audited them under the client's principal.
    if rule is None or not rule.is_change or _is_passed_on(caller, method):
        return await inner(request, context)
    fields = _fields(caller, method, request, context)
    try:
        reply = await inner(request, context)
    except asyncio.CancelledError:
        audit(outcome=FAILED, reason="cancelled; it may have been done", **fields)
        raise
    except BaseException as error:
        code = context.code()
        reason = context.details() or str(error) or type(error).__name__
        name = code.name if isinstance(code, grpc.StatusCode) else type(error).__name__
        audit(outcome=FAILED, reason=f"{name}: {_text(reason)}", **fields)
        raise
    problems = _problems(reply)
    audit(outcome=FAILED if problems else ALLOWED, reason=problems, **fields)
    return reply


def _is_passed_on(caller: Caller, method: str) -> bool:
    return caller.role is Role.BROKER and method.startswith("/antipode.control.Controller/")


def _audit_refusal(caller: Caller, method: str, request: Any, context: Any, decision: Decision) -> None:
    fields = _fields(caller, method, request, context)
    audit(outcome=DENIED, reason=decision.reason, **fields)


def _fields(caller: Caller, method: str, request: Any, context: Any) -> dict[str, str]:
    return {
        "operation": method.rpartition("/")[2],
        "principal": caller.name,
        "role": caller.role or "",
        "address": _address(context.peer()),
        "interface": "grpc",
        **subjects_of(request),
    }


def _problems(reply: Any) -> str:
    """Errors inside an answer: of the controller's, each topic or partition has its own."""
    results = [reply, *getattr(reply, "results", ())]
    problems = [
        f"{getattr(one, 'name', '') or getattr(one, 'topic', '')} error {one.error_code}: {one.error_message}".strip()
        for one in results
        if getattr(one, "error_code", 0)
    ]
    return "; ".join(problems[:3]) + (f"; {len(problems)} in all" if len(problems) > 3 else "")


def _address(peer: Any) -> str:
    """`10.0.0.1:49714` out of gRPC's `ipv4:10.0.0.1:49714`."""
    return _text(peer).removeprefix("ipv4:").removeprefix("ipv6:")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
