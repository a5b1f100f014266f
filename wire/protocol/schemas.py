"""The message types of kio and of our private APIs, loaded when first used, with their readers and
writers.

Maps an (api key, version) to its entities, so that framing, servers and clients need not. kio has
one module for each version; importing all takes seconds, so each is imported at its first use and
kept. Decoding is guarded (wire/protocol/length_guard.py).
"""

import io
from functools import cache
from typing import Any, Final

from kio.index import KioIndexError, load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from wire.protocol.byte_reader import Buffer, Malformed
from wire.protocol.length_guard import checked
from wire.protocol.messages.private import PRIVATE_NAMES, PRIVATE_VERSIONS, load_private_request, load_private_response

API_VERSIONS_KEY = 18
FLEXIBLE_FROM: Final = {0: 9, 1: 12}
"""The first version with tags of APIs whose messages have codecs by hand: Produce and Fetch. Their
modules of kio would take a broker's loop 10 to 20 ms at the first request, which may be the first
one after a promotion.
"""


class UnknownSchema(LookupError):
    """No message is described for this API key and version."""


@cache
def request_type(api_key: int, version: int) -> type[Any]:
    """The entity of a request. Raises UnknownSchema."""
    try:
        if api_key in PRIVATE_VERSIONS:
            return load_private_request(api_key, version)
        return load_request_schema(api_key, version)
    except (KioIndexError, LookupError) as error:
        raise UnknownSchema(f"no request schema for API key {api_key} version {version}") from error


@cache
def response_type(api_key: int, version: int) -> type[Any]:
    """The entity of a response. Raises UnknownSchema."""
    try:
        if api_key in PRIVATE_VERSIONS:
            return load_private_response(api_key, version)
        return load_response_schema(api_key, version)
    except (KioIndexError, LookupError) as error:
        raise UnknownSchema(f"no response schema for API key {api_key} version {version}") from error


def has_schema(api_key: int, version: int) -> bool:
    """True if kio describes request and response of this version. Not cached: clients may ask about
    any version.
    """
    try:
        return request_type(api_key, version) is not None and response_type(api_key, version) is not None
    except UnknownSchema:
        return False


@cache
def is_flexible(api_key: int, version: int) -> bool:
    """True if the headers of this request and of its response carry tags; ApiVersions' response
    header never does. Raises UnknownSchema.
    """
    if api_key in FLEXIBLE_FROM and (described := schema_versions(api_key)) is not None:
        first, last = described
        if not first <= version <= last:
            raise UnknownSchema(f"no request schema for API key {api_key} version {version}")
        return version >= FLEXIBLE_FROM[api_key]
    flexible: bool = request_type(api_key, version).__flexible__
    return flexible


@cache
def response_header_has_tags(api_key: int, version: int) -> bool:
    """Return `is_flexible`, but False for ApiVersions: its reader may not know yet which versions
    the broker speaks (KIP-511).
    """
    return api_key != API_VERSIONS_KEY and is_flexible(api_key, version)


@cache
def schema_versions(api_key: int) -> tuple[int, int] | None:
    """The lowest and the highest version that is described, or None for an unknown API."""
    if api_key in PRIVATE_VERSIONS:
        return PRIVATE_VERSIONS[api_key]
    if api_key not in api_key_map:
        return None
    described = schema_name_map[api_key_map[api_key]]
    versions = [version for version, kinds in described.items() if EntityType.request in kinds]
    return min(versions), max(versions)


def api_name(api_key: int) -> str:
    """Name for people, such as `offset_commit`; the number where the API is unknown."""
    return PRIVATE_NAMES.get(api_key) or api_key_map.get(api_key) or f"api_{api_key}"


def decode(entity_type: Any, buffer: Buffer, position: int = 0) -> Any:
    """The entity at `position`; bytes after it are ignored, as Kafka does. Raises Malformed for any
    other bytes.
    """
    buffer, position = checked(entity_type, buffer, position)
    try:
        # kio takes no buffer that could change under it; large frames are received into buffers
        # that are used again
        return _reader(entity_type)(memoryview(buffer).toreadonly(), position)[0]
    except Exception as error:
        raise Malformed(f"{entity_type.__name__}: {error}") from error


def encode(entity: Any) -> bytes:
    """The bytes of an entity without any header."""
    with io.BytesIO() as buffer:
        _writer(entity.__class__)(buffer, entity)
        return buffer.getvalue()


@cache
def _reader(entity_type: Any) -> Any:
    return entity_reader(entity_type)


@cache
def _writer(entity_type: Any) -> Any:
    return entity_writer(entity_type)
