"""Clients of a soak: each kind asks in its own way, again and again, and says what went wrong.

A request is lost that is answered neither with what was asked for nor with an error as one JSON
object. Those that leave early themselves lose nothing.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

#: How many clients of each kind ask at the same time.
COUNTS = {
    "steady": 4,
    "whole": 2,
    "shaped": 1,
    "vanish": 3,
    "hang": 4,
    "slow": 2,
    "rubbish": 1,
    "wrong": 2,
    "million": 1,
    "huge": 1,
    "lost path": 1,
}
MAX_PROBLEMS = 40
PATIENCE = 660.0  # seconds for one answer: longer than a server has for it
STREAM = "/v1/completions"
WRONG: list[Any] = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[1, 2]",
    b'{"prompt": NaN}',
    b"[" * 5000,
    b'{"a":' * 200 + b"1" + b"}" * 200,
    {},
    {"prompt": None},
    {"prompt": [-1]},
    {"prompt": [10**9]},
    {"prompt": "a", "max_tokens": -1},
    {"prompt": "a", "max_tokens": 1e400},
    {"prompt": "a", "temperature": "hot"},
    {"prompt": "a", "n": 10**6},
    {"prompt": "a", "seed": 2**64},
    {"prompt": "a", "stop": [""]},
    {"prompt": "a", "logit_bias": {"x": 1}},
    {"prompt": "a", "logit_bias": {"99999999": 1}, "max_tokens": 2},
    {"prompt": "a", "regex": "(" * 100},
    {"prompt": "a", "grammar": "start: nothing_there"},
    {"prompt": "a", "model": "another"},
    {"prompt": ["a"] * 100},
    {"prompt": "word " * 5000},
]


@dataclass(frozen=True)
class Answer:
    """What a server sent until it closed."""

    status: int
    body: bytes

    def error(self) -> str:
        """What is wrong with it as an error: it is one JSON object that says what is wrong."""
        try:
            told = json.loads(self.body)
        except ValueError:
            return f"{self.status} is no JSON: {self.body[:200]!r}"
        message = told.get("error") if isinstance(told, dict) else None
        message = message.get("message") if isinstance(message, dict) else message
        return "" if isinstance(message, str) and message else f"{self.status}: {self.body[:200]!r}"

    def text(self) -> str:
        """The text of a completion, whole or of a complete stream."""
        if self.body.startswith(b"data: "):
            if not self.body.rstrip().endswith(b"data: [DONE]"):
                raise ValueError(f"a stream ends early: {self.body[-200:]!r}")
            lines = [line for line in self.body.split(b"\n") if line.startswith(b"data: {")]
            return "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines)
        return str(json.loads(self.body)["choices"][0]["text"])


class Soak:
    """All clients of a server, and what they found."""

    def __init__(self, port: int, seed: int = 0, counts: dict[str, int] | None = None) -> None:
        self.port = port
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self._random = random.Random(seed)
        self._clients = COUNTS if counts is None else counts
        self._expected: dict[int, str] = {}
        self._began = time.monotonic()

    def seconds(self) -> float:
        return time.monotonic() - self._began

    def told(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))

    def wrong(self, kind: str, what: str) -> None:
        self.counts["lost"] += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{self.seconds():.0f} s, {kind}: {what}")

    async def fill(self, slots: int) -> None:
        """Have every page of the server written once: memory that was planned is then there."""
        for text in range(2):
            bodies = [self._endless(f"{text} {slot}") for slot in range(slots)]
            await asyncio.gather(*map(self._patient, bodies))

    async def run(self, seconds: float) -> None:
        """Ask for so long, then wait until those that are at it have their answers."""
        kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "steady": lambda: self._seeded(stream=True),
            "whole": lambda: self._seeded(stream=False),
            "shaped": self._shaped,
            "vanish": self._vanish,
            "hang": self._hang,
            "slow": self._slow,
            "rubbish": self._rubbish,
            "wrong": self._wrong,
            "million": self._million,
            "huge": self._huge,
            "lost path": self._lost_path,
        }
        for seed in range(4):
            self._expected[seed] = (await self._patient(seeded(seed, stream=False))).text()
        self._began = time.monotonic()
        until = time.monotonic() + seconds

        async def client(kind: str) -> None:
            while time.monotonic() < until:
                try:
                    async with asyncio.timeout(PATIENCE):
                        await kinds[kind]()
                    self.counts[kind] += 1
                except TimeoutError:
                    self.wrong(kind, f"no answer within {PATIENCE:g} s")
                except Exception as error:
                    self.wrong(kind, repr(error))
                await asyncio.sleep(self._random.uniform(0, 0.2))

        await asyncio.gather(*(client(kind) for kind, n in self._clients.items() for _ in range(n)))

    # Those who ask as they should.

    async def _seeded(self, *, stream: bool) -> None:
        seed = self._random.randrange(len(self._expected))
        found = (await self._patient(seeded(seed, stream=stream))).text()
        if found != self._expected[seed]:
            raise ValueError(f"seed {seed} gave {found!r} instead of {self._expected[seed]!r}")

    async def _patient(self, body: dict[str, Any]) -> Answer:
        """The answer, asked for until there is a place."""
        while True:
            answer = await self._ask(body)
            if answer.status != 429:
                if answer.status != 200:
                    raise ValueError(f"{answer.status}: {answer.body[:200]!r}")
                return answer
            if answer.error():
                raise ValueError(answer.error())
            self.counts["429"] += 1
            await asyncio.sleep(self._random.uniform(0.2, 1))

    async def _shaped(self) -> None:
        """An answer that is held to a schema, another one each time."""
        names = [f"n{self._random.randrange(1000)}" for _ in range(3)]
        one = {"enum": [*range(10), True, None]}
        schema = {
            "type": "object",
            "properties": dict.fromkeys(names, one),
            "required": names,
            "additionalProperties": False,
        }
        form = {"type": "json_schema", "json_schema": {"name": "form", "schema": schema}}
        body = {"prompt": "As JSON:", "response_format": form, "max_tokens": 300}
        found = json.loads((await self._patient(body)).text())
        if found.keys() != set(names):
            raise ValueError(f"{names} were asked for, and {found} came")

    # Those who don't.

    async def _vanish(self) -> None:
        reader, writer = await self._open()
        body = {"prompt": "Far away", "max_tokens": 10**6, "ignore_eos": True, "stream": True}
        writer.write(request(body))
        for _ in range(self._random.randrange(4)):
            await reader.read(100)
        writer.transport.abort() if self._random.random() < 0.5 else writer.close()

    async def _hang(self) -> None:
        whole = request({"prompt": "Nobody", "max_tokens": 4})
        _, writer = await self._open()
        writer.write(whole[: self._random.randrange(len(whole))])
        await asyncio.sleep(self._random.uniform(0, 45))
        writer.close()

    async def _slow(self) -> None:
        reader, writer = await self._open()
        writer.write(request({"prompt": "Slow", "max_tokens": 100, "stream": True}))
        for _ in range(self._random.randrange(20)):
            await reader.read(1)
            await asyncio.sleep(0.5)
        writer.close()

    async def _rubbish(self) -> None:
        reader, writer = await self._open()
        rubbish = self._random.randbytes(self._random.randrange(1, 3000)) + b"\r\n\r\n"
        writer.write(rubbish if self._random.random() < 0.5 else b"GET / HTTP/9\r\n" + rubbish)
        # Where no line ends, more could come: then nothing is answered for a while.
        try:
            async with asyncio.timeout(5):
                content = await reader.read(-1)
        except (TimeoutError, ConnectionError):
            content = b""
        writer.close()
        if content and (wrong := answer_of(content).error()):
            raise ValueError(wrong)

    async def _wrong(self) -> None:
        chosen = self._random.choice(WRONG)
        await self._expect_error(await self._ask(chosen), {400, 404}, chosen)

    async def _million(self) -> None:
        """It goes on to the end of the context."""
        told = json.loads((await self._patient(self._endless("On and on"))).body)
        if told["choices"][0]["finish_reason"] != "length":
            raise ValueError(f"it ended with {told['choices'][0]['finish_reason']!r}")

    def _endless(self, prompt: str) -> dict[str, Any]:
        return {"prompt": prompt, "max_tokens": 10**6, "ignore_eos": True}

    async def _huge(self) -> None:
        body = b'{"prompt": "' + b"x" * 2**25 + b'"}'
        await self._expect_error(await self._ask(body), {413}, "a huge body")

    async def _lost_path(self) -> None:
        path = self._random.choice(["/nothing", "/api/nothing", "/v1/../etc/passwd", "/v2/x"])
        await self._expect_error(await self._ask({}, path), {404, 405}, path)

    async def _expect_error(self, answer: Answer, statuses: set[int], asked: object) -> None:
        if answer.status == 429 and not answer.error():
            self.counts["429"] += 1
        elif answer.status not in statuses or answer.error():
            raise ValueError(f"{str(asked)[:80]}: {answer.error() or answer.status}")

    # One request.

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def _ask(self, body: dict[str, Any] | bytes, path: str = STREAM) -> Answer:
        reader, writer = await self._open()
        try:
            writer.write(request(body, path))
            return answer_of(await reader.read(-1))
        finally:
            writer.close()


def seeded(seed: int, *, stream: bool) -> dict[str, Any]:
    """A request whose text is known."""
    prompt = "Once upon a time " * (seed * 8 + 1)
    return {"prompt": prompt, "max_tokens": 16 + 8 * seed, "seed": seed, "stream": stream}


def request(body: dict[str, Any] | bytes, path: str = STREAM) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def answer_of(content: bytes) -> Answer:
    """Status and body of all that came."""
    head, _, body = content.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 "):
        raise ValueError(f"this is no answer: {content[:200]!r}")
    if b"transfer-encoding: chunked" in head.lower():
        body, rest = b"", body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return Answer(int(head.split()[1]), body)
