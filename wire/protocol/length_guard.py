"""Walks a message by its schema before the native decoder sees it, so that no length in it can lie.

kio's decoder allocates arrays by the length that the bytes claim: five bytes that claim 2^31
elements abort the whole process (seen with kio 0.6.5), which one connection must never do to the
others. A guard skips over the message without building anything: fixed-size runs are one addition,
each length is held against the bytes that are left and against the smallest size of an element, and
null is refused where the schema has none. The lengths of an accepted message are consistent from
end to end, so the decoder allocates at most a small multiple of the message.

Not a decoder: text encoding and ranges of values are left to kio. Called by
wire/protocol/schemas.py for every message that kio decodes; the hot messages with hand-written
parsers do not need it.
"""

from collections.abc import Callable
from dataclasses import Field, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, get_args, get_origin

from wire.protocol.byte_reader import Buffer, Malformed
from wire.protocol.byte_writer import uvarint_bytes

ELEMENTS_MAX: Final = 1_000_000
"""Array elements in one message, over all its arrays: bounds the time and the memory that bytes can
claim.
"""


_FIXED_SIZES: Final = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "uuid": 16,
}
_LENGTH_MAX: Final = 2**31 - 1


class Replacement(NamedTuple):
    """Bytes from `start` to `end` are replaced by `data`."""

    start: int
    end: int
    data: bytes


class Walk:
    """The findings of one pass over a message: unknown tags to leave out, and the number of
    elements that it may still claim.
    """

    __slots__ = ("elements_left", "replacements")

    def __init__(self) -> None:
        self.replacements: list[Replacement] = []
        self.elements_left = ELEMENTS_MAX


Skip = Callable[[Buffer, int, Walk], int]
"""Takes a buffer and a position, returns the position after the value; raises Malformed or
IndexError past the end.
"""


class Step(NamedTuple):
    """A way to skip one value: its least size, and a function unless the size is fixed."""

    size_min: int
    skip: Skip | None


def checked(entity_type: Any, buffer: Buffer, position: int) -> tuple[Buffer, int]:
    """A buffer and position at which kio may decode `entity_type`: those given, unless there are
    tags that kio does not know.

    Tags may be added to a version after its release, and a reader must ignore tags that it does not
    know (KIP-482), but kio 0.6.5 refuses them: then a copy without them is returned. Raises
    Malformed where the bytes contradict the schema.
    """
    step = _entity_step(entity_type)
    walk = Walk()
    try:
        end = _pass(step, buffer, position, walk)
    # fixed sizes are added without a look: only the end shows that the bytes ran out
    except IndexError:
        end = len(buffer) + 1
    if end > len(buffer):
        raise Malformed("message ends too early")
    if walk.replacements:
        return _replaced(buffer, position, end, walk.replacements), 0
    return buffer, position


def _pass(step: Step, buffer: Buffer, position: int, walk: Walk) -> int:
    return position + step.size_min if step.skip is None else step.skip(buffer, position, walk)


def _replaced(buffer: Buffer, start: int, end: int, replacements: list[Replacement]) -> bytes:
    parts: list[Buffer] = []
    for replacement in replacements:
        parts += (buffer[start : replacement.start], replacement.data)
        start = replacement.end
    parts.append(buffer[start:end])
    return b"".join(parts)


@cache
def _entity_step(entity_type: Any) -> Step:
    flexible: bool = entity_type.__flexible__
    steps: list[Step] = []
    tagged: dict[int, Step] = {}
    for field in fields(entity_type):
        step = _field_step(field, flexible=flexible)
        if "tag" in field.metadata:
            tagged[int(field.metadata["tag"])] = step
        else:
            steps.append(step)
    if flexible:
        steps.append(Step(1, _tags_skip(tagged)))
    return _sequence(steps)


def _sequence(steps: list[Step]) -> Step:
    """Joins steps into one; the sizes of neighbouring fixed-size steps are added."""
    plan: list[int | Skip] = []
    for step in steps:
        if step.skip is not None:
            plan.append(step.skip)
        elif plan and isinstance(plan[-1], int):
            plan[-1] += step.size_min
        else:
            plan.append(step.size_min)
    size_min = sum(step.size_min for step in steps)
    if all(isinstance(part, int) for part in plan):
        return Step(size_min, None)

    def skip(buffer: Buffer, position: int, walk: Walk) -> int:
        for part in plan:
            position = position + part if isinstance(part, int) else part(buffer, position, walk)
        return position

    return Step(size_min, skip)


def _field_step(field: Field[Any], *, flexible: bool) -> Step:
    kind, is_nullable = _without_none(field.type)
    if get_origin(kind) is tuple:
        return _array_step(
            _value_step(get_args(kind)[0], field, is_nullable=False, flexible=flexible), is_nullable, flexible
        )
    return _value_step(kind, field, is_nullable=is_nullable, flexible=flexible)


def _without_none(kind: Any) -> tuple[Any, bool]:
    if get_origin(kind) is not UnionType:
        return kind, False
    return next(part for part in get_args(kind) if part is not NoneType), True


def _value_step(kind: Any, field: Field[Any], *, is_nullable: bool, flexible: bool) -> Step:
    if is_dataclass(kind):
        step = _entity_step(kind)  # type: ignore[arg-type]
        return _marked_step(step) if is_nullable else step
    name = field.metadata["kafka_type"]
    if name in _FIXED_SIZES:
        return Step(_FIXED_SIZES[name], None)
    if flexible:
        return Step(1, _compact_bytes_skip(is_nullable))
    prefix_size = 2 if name == "string" else 4
    return Step(prefix_size, _bytes_skip(prefix_size, is_nullable))


def _marked_step(step: Step) -> Step:
    """A nullable structure: a byte, negative for null, in front of it (KIP-893)."""

    def skip(buffer: Buffer, position: int, walk: Walk) -> int:
        if buffer[position] > 127:
            return position + 1
        return _pass(step, buffer, position + 1, walk)

    return Step(1, skip)


def _bytes_skip(prefix_size: int, is_nullable: bool) -> Skip:
    def skip(buffer: Buffer, position: int, _walk: Walk) -> int:
        length = _signed(buffer, position, prefix_size)
        position += prefix_size
        if length < 0:
            _require_null(length, is_nullable)
            return position
        return _within(buffer, position + length)

    return skip


def _compact_bytes_skip(is_nullable: bool) -> Skip:
    def skip(buffer: Buffer, position: int, _walk: Walk) -> int:
        length = buffer[position]
        position += 1
        if length > 127:
            length, position = read_uvarint(buffer, position - 1)
        if length == 0:
            _require_null(-1, is_nullable)
            return position
        return _within(buffer, position + length - 1)

    return skip


def _array_step(element: Step, is_nullable: bool, flexible: bool) -> Step:
    element_skip = element.skip
    size_min = max(1, element.size_min)

    def skip(buffer: Buffer, position: int, walk: Walk) -> int:
        if flexible:
            count, position = read_uvarint(buffer, position)
            count -= 1
        else:
            count = _signed(buffer, position, 4)
            position += 4
        if count < 0:
            _require_null(count, is_nullable)
            return position
        walk.elements_left -= count
        if walk.elements_left < 0:
            raise Malformed(f"more than {ELEMENTS_MAX} elements")
        if count * size_min > len(buffer) - position:
            raise Malformed(f"{count} elements claimed, {len(buffer) - position} bytes left")
        if element_skip is None:
            return position + count * element.size_min
        for _ in range(count):
            position = element_skip(buffer, position, walk)
        return position

    return Step(1 if flexible else 4, skip)


def _tags_skip(tagged: dict[int, Step]) -> Skip:
    def skip(buffer: Buffer, position: int, walk: Walk) -> int:
        if buffer[position] == 0:
            return position + 1
        return _pass_tags(tagged, buffer, position, walk)

    return skip


def _pass_tags(tagged: dict[int, Step], buffer: Buffer, start: int, walk: Walk) -> int:
    count, position = read_uvarint(buffer, start)
    kept: dict[int, bytes] = {}
    previous_tag = -1
    has_changed = False
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        if tag <= previous_tag:
            raise Malformed(f"tag {tag} after tag {previous_tag}")
        previous_tag = tag
        size, position = read_uvarint(buffer, position)
        end = _within(buffer, position + size)
        if tag in tagged:
            inner = _checked_tag(tagged[tag], buffer, position, end, walk)
            has_changed = has_changed or bool(inner)
            kept[tag] = _replaced(buffer, position, end, inner)
        else:
            has_changed = True
        position = end
    if has_changed:
        walk.replacements.append(Replacement(start, position, _encoded_tags(kept)))
    return position


def _checked_tag(step: Step, buffer: Buffer, position: int, end: int, walk: Walk) -> list[Replacement]:
    """Replacements inside a known tag's value, which must have its declared size: kio takes as much
    as the value itself declares.
    """
    outer, walk.replacements = walk.replacements, []
    if _pass(step, buffer, position, walk) != end:
        raise Malformed("a tagged field does not have its declared size")
    inner, walk.replacements = walk.replacements, outer
    return inner


def _encoded_tags(tags: dict[int, bytes]) -> bytes:
    parts = [uvarint_bytes(len(tags))]
    for tag, value in tags.items():
        parts += (uvarint_bytes(tag), uvarint_bytes(len(value)), value)
    return b"".join(parts)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint below 2^31 and the position after it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 128:
            break
        shift += 7
        if shift > 28:
            raise Malformed("a varint has more than five bytes")
    if value > _LENGTH_MAX:
        raise Malformed(f"length {value} is above 2^31 - 1")
    return value, position


def _signed(buffer: Buffer, position: int, size: int) -> int:
    end = _within(buffer, position + size)
    return int.from_bytes(buffer[position:end], "big", signed=True)


def _within(buffer: Buffer, position: int) -> int:
    if position > len(buffer):
        raise Malformed("a length points past the end of the message")
    return position


def _require_null(length: int, is_nullable: bool) -> None:
    if length != -1:
        raise Malformed(f"length {length} is negative")
    if not is_nullable:
        raise Malformed("null where the schema has none")
