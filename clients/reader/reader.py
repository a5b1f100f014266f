"""The common part of the high-level consumer and the poll-loop consumer: a leader finder, and for
each broker one or several fetchers, which give chunks to a sink.

A chunk is the raw batches of one partition from one answer. The sink may make the fetcher wait
(`put` is awaited before the next fetch), which is the back pressure: one full queue delays the
other partitions of that fetcher. Positions move behind a chunk after it was put, so nothing is
skipped when that fails. A fetcher has a connection of its own, and one fetch in flight there, in an
incremental session. A partition always has the same number among the fetchers of its leader.

Every problem of a partition sends it back to the leader finder, except the problems that only the
application can resolve. Such a problem goes to the sink as a chunk with a `problem`, and the
partition halts until the application seeks, drops or retries it (`retry`). After a retry the
partition continues if the cause is gone, and halts again if not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from kio.schema.errors import ErrorCode

from clients.reader.core.positions import (
    LogTruncated,
    NoWholeBatch,
    Position,
    PositionLost,
    ResetPolicy,
    Trouble,
    diverges_at,
    resolve,
    take,
    trouble_of,
)
from clients.reader.core.readings import Fetcher, Phase, Reading, Readings, Start, Wanted
from clients.reader.reader_options import Chunk, DamagedLog, ReaderOptions, Sink
from clients.reader.single_fetches import records_of
from clients.reader.skipped_offsets import report_skipped
from clients.topics import Topics
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.batches.record_batch import InvalidBatch
from wire.client.client_errors import BrokerError, KafkaClientError, broker_error, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.broker_requests import EpochQuery, OffsetQuery
from wire.client.requests.fetch_requests import FetchRequest
from wire.client.session_fetch import FetchPosition, SessionFetch
from wire.protocol.ids import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, NO_NODE, NO_OFFSET, PartitionKey
from wire.protocol.messages.fetch_codec import PartitionFetched

_log = get_logger("clients.reader.reader")


class Reader:
    """`begin` and `end` choose the partitions to read; call `start` before and `close` after. The
    clients stay the caller's.

    `client` is used for metadata and offsets. `fetch_clients` only fetch, one for each number of a
    fetcher (`options.fetchers`): a long poll delays all later requests on its connection. `name` is
    the consumer's, for the names of the fetchers' tasks.
    """

    def __init__(
        self,
        client: KafkaClient,
        fetch_clients: Sequence[KafkaClient],
        sink: Sink,
        options: ReaderOptions,
        clock: Clock,
        *,
        name: str,
    ) -> None:
        self._client = client
        self._fetch_clients = tuple(fetch_clients)
        self._name = name
        self._sink = sink
        self._options = options
        self.readings = Readings(options.fetchers)
        self.topics = Topics(
            client,
            clock,
            max_age_ms=options.metadata_max_age_ms,
            backoff_ms=options.leader_backoff_ms,
            may_create=False,
            first_look_ms=10_000,
            on_refresh=self._place,
        )
        self._fetchers: dict[Fetcher, asyncio.Task[None]] = {}
        self._wakes: dict[Fetcher, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.fetches = 0
        self.skipped_offsets: dict[PartitionKey, int] = {}
        """Offsets that were skipped because the log did not have them, by partition; gaps from
        compaction count too.
        """
        self.failure: BaseException | None = None
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        """Receives a defect that has ended a part of the reading."""

    @property
    def fetcher_names(self) -> list[str]:
        """The tasks that fetch now, by broker and number. A name is that of a thread in Kafka 0.8:
        `ConsumerFetcherThread-<consumer>-<number>-<broker>`.
        """
        return [task.get_name() for _, task in sorted(self._fetchers.items(), key=lambda item: item[0])]

    def start(self) -> None:
        """Begin to look for leaders."""
        self._spawn(self.topics.run())

    def begin(self, starts: Mapping[PartitionKey, Start]) -> None:
        """Read these partitions, or read them from elsewhere."""
        for place, start in starts.items():
            self.readings.begin(place, start)
        self.topics.want({topic for topic, _ in starts})
        self._place()

    def end(self, places: Iterable[PartitionKey]) -> None:
        """Stop reading these. The answer of a fetch in flight is ignored."""
        self.readings.end(list(places))
        self.topics.forget({topic for topic, _ in places} - self.readings.topics)
        # fetchers whose last partition has ended are waiting, and must end
        for wake in self._wakes.values():
            wake.set()

    def pause(self, places: Iterable[PartitionKey]) -> None:
        """Do not fetch these for now."""
        self.readings.pause(places)

    def resume(self, places: Iterable[PartitionKey]) -> None:
        """Fetch these again."""
        self.readings.resume(places)
        self._place()

    def retry(self, place: PartitionKey) -> None:
        """The application has received the problem of a halted partition: check whether it
        persists.
        """
        self.readings.retry(place)
        self._place()

    async def stop_fetchers(self) -> None:
        """End all fetchers; nothing is put after this returns. `begin` starts new ones."""
        # before the cancellation: responses that are already here are then ignored
        self.readings.end(self.readings.places)
        fetchers = list(self._fetchers.values())
        for fetcher in fetchers:
            fetcher.cancel()
        await asyncio.gather(*fetchers, return_exceptions=True)
        self._fetchers.clear()
        self._wakes.clear()

    async def close(self) -> None:
        """End everything."""
        await self.stop_fetchers()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Leaders

    def _place(self) -> None:
        """Assign partitions to their leaders' fetchers, and request what they wait for."""
        for place in self.readings.places:
            known = self.topics.known(place[0])
            partition = None if known is None else known.partitions.get(place[1])
            # metadata of a doubted topic may name the leader that has just refused a request
            if partition is not None and self.topics.leader_of(*place) != NO_NODE:
                self.readings.led_by(place, partition.leader_id, partition.leader_epoch)
        for topic in {topic for topic, _ in self.readings.leaderless()}:
            self.topics.doubt(topic)
        # fetch clients have caches of their own: without this they would look the same leaders up
        # again
        for client in self._fetch_clients:
            client.learn(self._client.cluster)
        for fetcher in self.readings.fetchers():
            if fetcher not in self._fetchers:
                self._wakes[fetcher] = asyncio.Event()
                node_id, number = fetcher
                name = f"ConsumerFetcherThread-{self._name}-{number}-{node_id}"
                task = asyncio.get_running_loop().create_task(self._fetch_from(fetcher), name=name)
                task.add_done_callback(self._note_failure)
                self._fetchers[fetcher] = task
            self._wakes[fetcher].set()
        for phase, ask in ((Phase.NO_OFFSET, self._find_offsets), (Phase.UNVALIDATED, self._validate)):
            for node_id, readings in self.readings.asking(phase).items():
                for reading in readings:
                    # set before the task runs, or the next call would ask a second time
                    reading.is_asking = True
                self._spawn(self._ask(node_id, readings, ask))

    async def _ask(
        self, node_id: int, readings: list[Reading], ask: Callable[[int, list[Reading]], Awaitable[None]]
    ) -> None:
        try:
            await ask(node_id, readings)
        except KafkaClientError as error:
            self.topics.last_problem = str(error)
            for reading in readings:
                self._lose_leader(reading.place)
        finally:
            for reading in readings:
                reading.is_asking = False
        self._place()

    def _lose_leader(self, place: PartitionKey) -> None:
        self.readings.lost_leader(place)
        self.topics.doubt(place[0])

    async def _find_offsets(self, node_id: int, readings: list[Reading]) -> None:
        timed = {r.place: r.start.timestamp for r in readings if r.start.timestamp is not None}
        ends: dict[PartitionKey, dict[int, int]] = {reading.place: {} for reading in readings}
        # start and end of the log are needed in any case, to check or to reset a position
        for special in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, None):
            queries = {
                place: OffsetQuery(special if special is not None else timed[place])
                for place in (ends if special is not None else timed)
            }
            if not queries:
                continue
            listing = self._client.list_offsets(node_id, queries, isolation_level=self._options.isolation_level)
            for place, listed in (await listing).items():
                if listed.error_code:
                    raise broker_error(listed.error_code, message=f"{place[0]}-{place[1]}", node=f"node {node_id}")
                ends[place][0 if special is None else special] = listed.offset
        for reading in readings:
            # a seek or a revocation during the request makes the answer obsolete
            if self.readings.current(reading.place, reading.generation) is not reading:
                continue
            start, end = ends[reading.place][EARLIEST_TIMESTAMP], ends[reading.place][LATEST_TIMESTAMP]
            if reading.start.timestamp is not None:
                at = ends[reading.place][0]
                # No record is that new: continue with the next one.
                self.readings.found_offset(reading, Position(end if at == NO_OFFSET else at))
                continue
            lost = reading.lost_position
            offset = resolve(self._options.policy, None if lost is None else lost.offset, log_start=start, log_end=end)
            if offset is None:
                what = (
                    "the group has no committed offset" if lost is None else f"offset {lost.offset} is not in the log"
                )
                topic, partition = reading.place
                await self._halt(reading, PositionLost(f"{topic}-{partition}: {what}, which is {start} to {end}"))
            else:
                if lost is not None:
                    skipped = report_skipped(reading.place, lost, offset, log_start=start, log_end=end)
                    self.skipped_offsets[reading.place] = self.skipped_offsets.get(reading.place, 0) + skipped
                self.readings.found_offset(reading, Position(offset))

    async def _validate(self, node_id: int, readings: list[Reading]) -> None:
        queries = {r.place: EpochQuery(r.fetched.leader_epoch, r.leader_epoch) for r in readings}
        # KIP-320: the epoch's end shows whether the new leader has the records that were read
        ends = await self._client.epoch_ends(node_id, queries)
        for reading in readings:
            if self.readings.current(reading.place, reading.generation) is not reading:
                continue
            end = ends[reading.place]
            if end.error_code:
                self._lose_leader(reading.place)
                continue
            at = diverges_at(reading.fetched, epoch=end.leader_epoch, end_offset=end.end_offset)
            if at is None:
                reading.phase = Phase.READY
            elif self._options.policy is ResetPolicy.FAIL:
                truncated = LogTruncated(reading.place, reading.fetched, None if at == NO_OFFSET else at)
                await self._halt(reading, truncated)
            elif at == NO_OFFSET:
                # the leader knows no common epoch: the reset policy decides
                self.readings.lost_offset(reading)
            else:
                _log.warning("the log was truncated below the read position", place=str(reading.place), diverges_at=at)
                self.readings.begin(reading.place, Start(Position(at)))

    async def _halt(self, reading: Reading, problem: Exception) -> None:
        self.readings.halt(reading)
        await self._sink.put(
            Chunk(
                place=reading.place,
                generation=reading.generation,
                position=reading.fetched,
                next=reading.fetched,
                problem=problem,
            )
        )

    # Fetchers

    async def _fetch_from(self, fetcher: Fetcher) -> None:
        """Run one fetcher until the broker leads none of its partitions."""
        options = self._options
        node_id, number = fetcher
        limits = FetchRequest(
            [],
            max_wait_ms=options.max_wait_ms,
            min_bytes=options.min_bytes,
            max_bytes=options.fetch_bytes,
            isolation_level=options.isolation_level,
            rack_id=options.rack,
        )
        session = SessionFetch(limits, partition_max_bytes=options.partition_bytes)
        while fetcher in self.readings.fetchers():
            wanted = self.readings.fetchable(node_id, number)
            if not wanted:
                wake = self._wakes[fetcher]
                wake.clear()
                await wake.wait()
                continue
            positions = {place: FetchPosition(one.position.offset, one.leader_epoch) for place, one in wanted.items()}
            ids = {topic: self.topics.topic_id(topic) for topic, _ in wanted}
            self.fetches += 1
            try:
                response = await self._fetch_clients[number].fetch(node_id, session.request(positions, ids))
                answers = session.answered(response)
            except KafkaClientError as error:
                # the broker may have handled the request, so the session's epoch is unknown
                # (KIP-227)
                session.reset()
                self.topics.last_problem = str(error)
                for place in wanted:
                    self._lose_leader(place)
                continue
            await self._accept(wanted, answers)
        self._fetchers.pop(fetcher, None)
        self._wakes.pop(fetcher, None)

    async def _accept(
        self, wanted: Mapping[PartitionKey, Wanted], answers: Iterable[tuple[str, PartitionFetched]]
    ) -> None:
        """Process the requested partitions that are still wanted; answers to older requests are
        ignored.
        """
        for topic, fetched in answers:
            place = (topic, fetched.partition_index)
            asked = wanted.get(place)
            reading = None if asked is None else self.readings.current(place, asked.generation)
            if asked is not None and reading is not None and reading.fetched == asked.position:
                await self._take(reading, asked, fetched)

    async def _take(self, reading: Reading, asked: Wanted, fetched: PartitionFetched) -> None:
        trouble = trouble_of(error_code(fetched.error_code))
        if trouble is not Trouble.NONE:
            await self._resolve(reading, trouble, error_code(fetched.error_code))
            return
        records = records_of(fetched)
        try:
            taken = take(records, asked.position)
        except (InvalidBatch, NoWholeBatch) as error:
            topic, partition = reading.place
            await self._halt(reading, DamagedLog(f"{topic}-{partition} at offset {asked.position.offset}: {error}"))
            return
        if taken is None:
            reading.high_watermark, reading.log_start_offset = fetched.high_watermark, fetched.log_start_offset
            return
        chunk = Chunk(
            place=reading.place,
            generation=reading.generation,
            position=asked.position,
            next=taken.next,
            records=records[taken.start : taken.end],
            record_count=taken.record_count,
            aborted=tuple(fetched.aborted_transactions or ()),
        )
        await self._sink.put(chunk)
        # `put` may have waited: a seek in between has moved the position
        if self.readings.current(reading.place, chunk.generation) is reading and reading.fetched == asked.position:
            self.readings.advance(
                reading,
                taken.next,
                high_watermark=fetched.high_watermark,
                log_start_offset=fetched.log_start_offset,
            )

    async def _resolve(self, reading: Reading, trouble: Trouble, code: ErrorCode) -> None:
        topic, partition = reading.place
        if trouble is Trouble.OUT_OF_RANGE:
            self.readings.lost_offset(reading)
            self._place()
        elif trouble in (Trouble.MOVED, Trouble.PASSING):
            self._lose_leader(reading.place)
        else:
            error = BrokerError(code, message=f"{topic}-{partition} at offset {reading.fetched.offset}", api_key=1)
            await self._halt(reading, error)

    def _spawn(self, work: Awaitable[None]) -> None:
        async def guarded() -> None:
            await work

        task = asyncio.get_running_loop().create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._note_failure)

    def _note_failure(self, task: asyncio.Task[None]) -> None:
        """A bug ends a task: readers check `failure`, or get `on_failure`."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.failure = error
            self.on_failure(error)
