"""The doors of every handler are the parts of a broker that it uses, with the types that the
assembly gives them.
"""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from broker.assembly.handler_parts import HandlerParts
from broker.handlers.registry import EntityHandler, FrameHandler, bind_handlers, load_handlers

DOORS = {module.__name__: module.Doors for module in load_handlers().values() if hasattr(module, "Doors")}
PARTS = get_type_hints(HandlerParts)
DOORS_MAX = 9
"""Most handlers name two or three parts; Produce, Fetch and Metadata join the rooms of a broker."""


@pytest.mark.parametrize("name", DOORS)
def test_doors_are_parts_of_the_broker_by_name_and_type(name: str) -> None:
    doors = get_type_hints(DOORS[name])
    assert doors == {part: PARTS.get(part) for part in doors}
    assert 0 < len(doors) <= DOORS_MAX


def test_each_part_is_a_door_of_some_handler() -> None:
    used = {name for doors in DOORS.values() for name in doors.__struct_fields__}
    assert used == set(PARTS)


def test_a_handler_gets_the_parts_that_it_names_and_no_other() -> None:
    class Parts:
        def __getattr__(self, name: str) -> str:
            return f"the {name}"

    bound = bind_handlers(Parts())
    assert bound.keys() == load_handlers().keys()
    for key, module in load_handlers().items():
        handler: Any = bound[key]
        is_hot = hasattr(module, "handle_frame")
        assert isinstance(handler, FrameHandler if is_hot else EntityHandler)
        assert (handler.handle_frame if is_hot else handler.handle) is getattr(
            module, "handle_frame" if is_hot else "handle"
        )
        if handler.doors is not None:
            assert all(getattr(handler.doors, name) == f"the {name}" for name in handler.doors.__struct_fields__)
