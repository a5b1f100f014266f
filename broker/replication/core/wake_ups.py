"""The wake-up table: which waiting requests look again when something about a partition changes.

Pure. The code that changes a partition only names the change (`Change`). The table says, for each
change, which kinds of waiting requests (`DelayedOperation`) it wakes, and how it affects the
sessions of followers and of mirrors. `broker/replication/purgatory.py` acts on it.
"""

from __future__ import annotations

import enum


class DelayedOperation(enum.IntEnum):
    """The kinds of requests that wait; an index of the purgatory's tables."""

    CONSUMER_FETCH = 0
    """A client waits for records below the high watermark."""
    FOLLOWER_FETCH = 1
    """A follower waits for records below the log's end."""
    MIRROR_FETCH = 2
    """A mirror or a tool waits for records below the mirrorable end."""
    PRODUCE = 3
    """A writer waits until the high watermark has passed what it appended."""
    DELETE_RECORDS = 4
    """A deletion waits until the living followers begin where their leader does."""


class SessionNews(enum.Enum):
    """The effect of a change on the sessions of followers or mirrors that have the partition."""

    NOTHING = enum.auto()
    WITH_NEXT_ANSWER = enum.auto()
    AT_ONCE_IF_READ = enum.auto()
    """At once where clients read from the follower (KIP-392), else with the next answer."""
    AT_ONCE = enum.auto()


_ALL = tuple(DelayedOperation)


class Change(enum.Enum):
    """A change of a partition: its name, the requests that it wakes, its effect on followers'
    sessions and on mirrors' sessions.
    """

    LOG_GREW = "the log grew", (DelayedOperation.FOLLOWER_FETCH,), SessionNews.AT_ONCE, SessionNews.NOTHING
    HIGH_WATERMARK = (
        "the high watermark moved",
        (DelayedOperation.CONSUMER_FETCH, DelayedOperation.PRODUCE),
        SessionNews.AT_ONCE_IF_READ,
        SessionNews.NOTHING,
    )
    MIRRORABLE_END = (
        "the mirrorable end moved",
        (DelayedOperation.MIRROR_FETCH,),
        SessionNews.NOTHING,
        SessionNews.AT_ONCE,
    )
    LOG_START = (
        "records were deleted",
        (DelayedOperation.CONSUMER_FETCH, DelayedOperation.FOLLOWER_FETCH),
        SessionNews.AT_ONCE,
        SessionNews.WITH_NEXT_ANSWER,
    )
    RETENTION = "old segments were deleted", (), SessionNews.WITH_NEXT_ANSWER, SessionNews.WITH_NEXT_ANSWER
    FOLLOWER_FETCHED = (
        "a follower fetched",
        (DelayedOperation.DELETE_RECORDS,),
        SessionNews.NOTHING,
        SessionNews.NOTHING,
    )
    # a follower learns its place among the in-sync replicas from the image; its session only wakes
    # up later
    REPLICAS = (
        "replicas or in-sync replicas changed",
        (DelayedOperation.DELETE_RECORDS,),
        SessionNews.WITH_NEXT_ANSWER,
        SessionNews.NOTHING,
    )
    LIVE_BROKERS = "other brokers live", (DelayedOperation.DELETE_RECORDS,), SessionNews.NOTHING, SessionNews.NOTHING
    READ_PERMISSION = (
        "clients may read, or no longer",
        (DelayedOperation.CONSUMER_FETCH,),
        SessionNews.NOTHING,
        SessionNews.WITH_NEXT_ANSWER,
    )
    LEADERSHIP = "leadership changed", _ALL, SessionNews.AT_ONCE, SessionNews.AT_ONCE
    LOG_REPLACED = "the log was truncated or restarted", _ALL, SessionNews.AT_ONCE, SessionNews.AT_ONCE

    def __init__(
        self, title: str, woken: tuple[DelayedOperation, ...], followers: SessionNews, mirrors: SessionNews
    ) -> None:
        self.title = title
        self.woken = woken
        self.followers = followers
        self.mirrors = mirrors
