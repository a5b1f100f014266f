"""Makes OpenSSL receive several records of TLS with one system call.

By default OpenSSL asks the kernel twice for each record: for its header, then for its body.
librdkafka sends a record of TLS for each record of Kafka, so a broker spent more time on these
calls than on the decryption. Python has no access to `SSL_CTX_set_read_ahead`. This module calls it
through ctypes, with the pointer that is the first field of `ssl.SSLContext` in every CPython so
far; other interpreters and Pythons without a shared libssl go without.

A reader of such a context must read until OpenSSL asks for more: records that OpenSSL has received
and not decrypted make neither the socket readable nor `pending` positive.

Caller: broker/authentication/entrances.py.
"""

from __future__ import annotations

import ctypes
import ssl
import sys
from typing import Any, Final

_CTRL_SET_READ_AHEAD: Final = 41
"""SSL_CTRL_SET_READ_AHEAD of openssl/ssl.h."""
_CONTEXT_POINTER_AT: Final = object.__basicsize__
"""`ctx` of PySSLContext in CPython's Modules/_ssl.c, behind the head of an object."""
CHECKED_PYTHONS: Final = ((3, 11), (3, 13))
"""The first and the last version with which this was tried."""


def read_ahead(context: ssl.SSLContext) -> bool:
    """Have connections of the context read ahead. Returns False where this Python cannot do it."""
    library = _libssl()
    if library is None:
        return False
    pointer = ctypes.c_void_p.from_address(id(context) + _CONTEXT_POINTER_AT)
    # a wrong pointer must not be written to
    if not pointer.value or library.SSL_CTX_get_options(pointer) != context.options:
        return False
    library.SSL_CTX_ctrl(pointer, _CTRL_SET_READ_AHEAD, 1, None)
    return True


def _libssl() -> Any:
    """The libssl to which Python's `ssl` is linked; None where it cannot be called."""
    first, last = CHECKED_PYTHONS
    if sys.implementation.name != "cpython" or not first <= sys.version_info[:2] <= last:
        return None
    file = getattr(sys.modules.get("_ssl"), "__file__", None)
    if file is None:
        return None
    try:
        # symbols of the libraries that this file needs, and so of the right libssl
        library = ctypes.CDLL(file)
        options, control = library.SSL_CTX_get_options, library.SSL_CTX_ctrl
    except (OSError, AttributeError):
        return None
    options.argtypes, options.restype = [ctypes.c_void_p], ctypes.c_uint64
    control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    control.restype = ctypes.c_long
    return library
