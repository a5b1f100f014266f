"""What this broker has heard of one link's mirror (`wire/group_words.py`): the last word of each daemon, and how old each part is."""

from __future__ import annotations

from wire.group_words import MIRROR_SLOTS, GroupWord, HeardWord, counting


class HeardWords:
    """Of one link. Times of hearing are monotonic ms."""

    def __init__(self) -> None:
        self._synced_at_ms = [0] * MIRROR_SLOTS
        self._heard: dict[str, tuple[GroupWord, float]] = {}

    @property
    def synced_by_slot(self) -> tuple[int, ...]:
        """As of when each part was carried whole, by whomever; 0 never."""
        return tuple(self._synced_at_ms)

    def take(self, word: GroupWord, now_ms: float) -> None:
        """A daemon has said this."""
        for slot in word.slots:
            self._synced_at_ms[slot] = max(self._synced_at_ms[slot], word.synced_at_ms)
        self._heard[word.daemon] = (word, now_ms)
        counted = {one.daemon for one in self.words(now_ms)}
        self._heard = {daemon: heard for daemon, heard in self._heard.items() if daemon in counted}

    def words(self, now_ms: float) -> list[HeardWord]:
        """The words that count."""
        return counting(
            [HeardWord(word.daemon, word.slots, word.problems, now_ms - at_ms) for word, at_ms in self._heard.values()]
        )

    def forget_words(self) -> None:
        """The link has turned: what was said before is of another time. How far groups were carried stays known."""
        self._heard.clear()
