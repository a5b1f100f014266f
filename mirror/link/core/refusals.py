"""The planned changes that the target's controller refuses, topic by topic, for as long as it
refuses them.

Topics that are missing or too small are planned in every round, so a refusal of those that is not
repeated is healed. Configs are compared in some rounds only: their refusal persists until a round
that compared them asks for no change or has it done.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, assert_never

from msgspec import Struct

from mirror.link.core.topic_plan import Action, AlterConfigs, CreateTopic, DeleteCopy, GrowTopic


class Refusal(Struct, frozen=True, kw_only=True):
    """A refused change of one topic, the time of the first refusal (Unix ms), and the action that a
    person can take.
    """

    topic: str
    change: type[Action]
    reason: str
    way_out: str
    since_ms: int


class Refusals:
    """The refusals of one link. `take` updates them after each round."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, type[Action]], Refusal] = {}

    def __iter__(self) -> Iterator[Refusal]:
        return iter(tuple(self._known.values()))

    def __len__(self) -> int:
        return len(self._known)

    def take(
        self,
        outcomes: Sequence[tuple[Action, str]],
        *,
        compared: Collection[str],
        present: Collection[str],
        now_ms: int,
    ) -> tuple[list[Refusal], list[Refusal]]:
        """A round's results: each action with why it was refused, empty when it was done.
        `compared` are the topics whose configs it compared, `present` those that both sites have.
        Returns new refusals, refusals with a new reason, and the topics whose refusal has ended.
        """
        before = self._known
        asked = {(action.name, type(action)) for action, _ in outcomes}
        after = {
            place: refusal
            for place, refusal in before.items()
            if place not in asked and place[1] is AlterConfigs and place[0] in present and place[0] not in compared
        }
        for action, reason in outcomes:
            if reason:
                place = (action.name, type(action))
                since_ms = before[place].since_ms if place in before else now_ms
                after[place] = Refusal(
                    topic=action.name,
                    change=type(action),
                    reason=reason,
                    way_out=way_out_of(action),
                    since_ms=since_ms,
                )
        self._known = dict(sorted(after.items(), key=lambda item: (item[0][0], item[0][1].__name__)))
        new = [after[place] for place in after if place not in before or before[place].reason != after[place].reason]
        return new, [before[place] for place in before if place not in after]

    def forget(self) -> None:
        """Forget all refusals."""
        self._known = {}


_AGAIN: Final = "the mirror retries it automatically"


def way_out_of(action: Action) -> str:
    """The steps with which a person can resolve a refused change."""
    match action:
        case CreateTopic():
            return (
                "the topic is not at the target until the target's controller creates it: fix what it reports, or leave the topic "
                f"out with the link's blacklist; {_AGAIN}"
            )
        case GrowTopic():
            return (
                "the new partitions are not at the target until its controller creates them: fix what it reports; "
                f"{_AGAIN}"
            )
        case AlterConfigs():
            return (
                "records are still mirrored and the copy keeps its configs: give the topic configs at the source that the target "
                f"accepts, or name them in the mirror's config.properties.exclude; {_AGAIN}"
            )
        case DeleteCopy():
            return "run `antipode links reset` again"
        case _:
            assert_never(action)
