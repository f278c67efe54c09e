"""The state behind the pages: one broker, accessed by requests, and the rendering of pages in turns of the loop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..client.errors import words_of
from ..metrics.view import View, look
from ..shares import Shares
from . import units
from .broker import PageRefused as PageRefused
from .broker import Unreachable as Unreachable
from .charts import SAMPLE_S, History, Sample
from .decoders import Decoders

if TYPE_CHECKING:
    from jinja2 import Template

    from .broker import ConsoleBroker

FOLDER = Path(__file__).parent
#: Sampling ends after this time without a page view.
IDLE_MS = 15 * 60_000
#: The maximum number of live pages at the same time; each uses one of the listener's 32 connections.
#: One address may have eight of them.
MAX_STREAMS = 11
#: The maximum interval between messages of a stream; sending them detects readers that have gone.
BEAT_S = 2.0
#: Line breaks in a stream of events.
LINE_BREAK = re.compile("\r\n|\r|\n")
#: The number of pieces of a page after which other work gets its turn.
PIECES = 64
#: How long a silent broker is not asked again, so that the next pages need not wait for it.
SILENT_MS = 5_000


@dataclass
class Kept:
    """A gathered value, and how long it is valid."""

    until_ms: int
    value: Any
    of: object = None


@dataclass(eq=False)
class Console:
    """Renders pages about a broker. Shape: `templates` are compiled in a thread, each on its first use."""

    broker: ConsoleBroker
    history: History = field(default_factory=History)
    write_allowed: bool = False
    streams: Shares = field(default_factory=Shares)
    _kept: dict[Any, Kept] = field(default_factory=dict)
    _making: dict[Any, asyncio.Future[Any]] = field(default_factory=dict)
    _sampling: asyncio.Task[None] | None = None
    _looked_at_ms: int = 0
    _silent: dict[int, Kept] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            grouped=units.grouped,
            size=units.size,
            rate=units.rate,
            duration=units.duration,
            moment=units.moment,
            iso=units.iso,
            percent=units.percent,
            short=units.shortened,
            plural=units.plural,
        )
        self._templates: dict[str, Template] = {}
        self.decoders = Decoders(self.broker.config.get_optional_str("kwire.console.schemas"))

    async def ask(self, request: Any, version: int | None = None, to: int | None = None) -> Any:
        """Send a request to a broker, by default to this one. Errors: PageRefused, Unreachable."""
        if to is not None and (reason := self.silent.get(to)):
            raise Unreachable(to, reason)
        try:
            return await self.broker.client.ask(request, version, to)
        except Unreachable as error:
            until_ms = self.broker.clock.monotonic_ms() + SILENT_MS
            self._silent[error.broker_id] = Kept(until_ms, error.reason)
            raise

    async def ask_each(
        self, requests: Mapping[int, Any], version: int | None = None
    ) -> dict[int, Any]:
        """Send several brokers their requests at the same time.

        Shape: the responses by broker; brokers that do not answer are omitted, and named on the page. Errors: PageRefused.
        """

        async def one(broker_id: int, request: Any) -> Any:
            try:
                return await self.ask(request, version, broker_id)
            except Unreachable:
                return None

        answers = await asyncio.gather(*(one(*each) for each in requests.items()))
        return {
            broker_id: answer
            for broker_id, answer in zip(requests, answers, strict=True)
            if answer is not None
        }

    @property
    def live(self) -> list[int]:
        """The live brokers, this one first."""
        own = self.broker.node_id
        return [own, *sorted(self.broker.image().brokers.keys() - {own})]

    @property
    def silent(self) -> dict[int, str]:
        """The brokers that have not answered recently, and the reasons."""
        now_ms = self.broker.clock.monotonic_ms()
        self._silent = {each: kept for each, kept in self._silent.items() if now_ms < kept.until_ms}
        return {each: kept.value for each, kept in sorted(self._silent.items())}

    async def kept(
        self, key: Any, ms: int, make: Callable[[], Awaitable[Any]], of: object = None
    ) -> Any:
        """The result of `make`, at most `ms` old and for the same object `of`; concurrent pages share one call."""
        now_ms = self.broker.clock.monotonic_ms()
        found = self._kept.get(key)
        if found is not None and now_ms < found.until_ms and found.of is of:
            return found.value
        making = self._making.get(key)
        if making is None:
            making = asyncio.ensure_future(make())
            self._making[key] = making
            making.add_done_callback(lambda _: self._making.pop(key, None))
        value = await asyncio.shield(making)
        if len(self._kept) > 64:
            self._kept.clear()
        self._kept[key] = Kept(self.broker.clock.monotonic_ms() + ms, value, of)
        return value

    def forget(self) -> None:
        """Discard all gathered values after a change."""
        self._kept.clear()

    # -- rendering

    async def render(self, name: str, **values: Any) -> str:
        """A template with these values, rendered in turns of the loop."""
        template = self._templates.get(name)
        if template is None:
            template = await self.broker.executor.in_thread(self._environment.get_template, name)
            self._templates[name] = template
        broker = self.broker
        pieces: list[str] = []
        for count, piece in enumerate(
            template.generate(broker=broker, console=self, now_ms=broker.clock.now_ms(), **values)
        ):
            pieces.append(piece)
            if count % PIECES == 0:
                await broker.turns.pause(self)
        # Half of a surrogate pair, from a JSON document or a file name, cannot be sent.
        return "".join(pieces).encode("utf-8", "backslashreplace").decode("utf-8")

    # -- what is live

    async def follow(
        self,
        render: Callable[[], Awaitable[str | None]],
        every_s: float = BEAT_S,
        repeated: bool = False,
    ) -> AsyncIterator[bytes]:
        """Server-sent events: the result of `render` when it differs from the previous one, or always if `repeated`.

        Source: HTML Living Standard, 9.2 Server-sent events.
        """
        before: str | None = None
        while True:
            text = await render()
            if text is None or (text == before and not repeated):
                yield b": still here\n\n"
            else:
                yield event(text)
                before = text
            await asyncio.sleep(every_s)

    # -- rates

    def looked_at(self) -> None:
        """Note a page view, and sample the counters from now on."""
        self._looked_at_ms = self.broker.clock.monotonic_ms()
        if self._sampling is None or self._sampling.done():
            self._sampling = asyncio.create_task(self._sample())

    async def _sample(self) -> None:
        broker = self.broker
        while broker.clock.monotonic_ms() - self._looked_at_ms < IDLE_MS:
            self.history.add(sample_of(await self.view()))
            await asyncio.sleep(SAMPLE_S)
        self.history.samples.clear()
        self.forget()

    async def view(self) -> View:
        """The broker's own counters, at most a second old."""
        return await self.kept("view", 1000, self._look)  # type: ignore[no-any-return]

    async def _look(self) -> View:
        broker = self.broker
        view = View(
            broker.sources,
            3,
            broker.image(),
            broker.clock.now_ms(),
            broker.clock.monotonic_ms(),
            1 << 30,
        )
        for _ in look(view):
            await broker.turns.pause(self)
        return view

    async def close(self) -> None:
        """Stop sampling."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait([self._sampling])


def sample_of(view: View) -> Sample:
    """The counters that are plotted."""
    return Sample(
        view.steady_ms,
        sum(topic.bytes for topic in view.topics_in.values()),
        sum(topic.bytes_out for topic in view.topics.values()),
        sum(topic.messages for topic in view.topics_in.values()),
        sum(api.requests for api in view.sources.requests.apis.values()),
    )


def event(text: str) -> bytes:
    """One server-sent event. Shape: every kind of line break begins a new data line, so that no text can begin another
    field.
    """
    lines = "\n".join(f"data: {line}" for line in LINE_BREAK.split(text))
    return f"{lines}\n\n".encode()


def said(code: int) -> str:
    """An error code in words, such as `not leader or follower`; empty for none."""
    return words_of(code) if code else ""
