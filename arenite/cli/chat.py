"""`arenite chat`: talk with a model on a terminal, or line by line through a pipe."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from arenite.cli import language, lines, manner
from arenite.cli.models import MODEL_HELP
from arenite.cli.options import Choosing, Loading, spread
from arenite.errors import AreniteError
from arenite.memory.tables import printable

if TYPE_CHECKING:
    from arenite.generate import LanguageModel
    from arenite.generate.generation import Stats
    from arenite.generate.sampling import Sampling

HELP = """\
/help         this
/plan         where every byte of the model lies
/stats        what the last answer took
/reset        forget what was said
/save FILE    write what was said as JSON
/quit         leave; so does Ctrl-D, or Ctrl-C twice

A line that ends with a backslash goes on with the next; \"\"\" opens a message of many lines and
\"\"\" closes it. Ctrl-C ends an answer."""

#: Tokens of the context that are kept free for an answer, and the share of it they may take.
ANSWER_TOKENS, ANSWER_SHARE = 512, 4

#: Why an answer ended, where that is not what the model wanted.
ENDS = {
    "length": "ended after --max-tokens",
    "context": "ended: the context is full",
    "cancelled": "ended by Ctrl-C",
}
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@spread
def chat(
    model: Annotated[str | None, typer.Argument(metavar="MODEL", help=MODEL_HELP)] = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first.")
    ] = None,
    *,
    loading: Loading,
    choosing: Choosing,
) -> int:
    """Talk with a model.

    Without MODEL it is the one that `arenite` uses where none is named; it is fetched if it is
    not there. Answers go to standard output, all else to standard error. /help lists what can be
    typed besides messages.
    """
    from arenite.generate.sampling import Sampling
    from arenite.runtime.cache import default_folder

    manner.check_text("--system", system)
    manner.check_text("--stop", *(choosing.stop or ()))
    sampling = Sampling(**choosing.given())
    loaded = language.load(model, loading)
    with loaded, lines.remembered(default_folder() / "chat_history"):
        talk = Talk(loaded, sampling, system)
        talk.greet()
        talk.go_on()
    return manner.EXIT_DONE


class Talk:
    """One conversation on a terminal."""

    def __init__(self, model: LanguageModel, sampling: Sampling, system: str | None) -> None:
        from arenite.generate.history import Conversation

        self.model, self.sampling = model, sampling
        self.conversation = Conversation(system)
        # Before anything is typed: that the model can be talked to, and told this first.
        model.chat_tokens([*self.conversation.messages, {"role": "user", "content": "?"}])
        self.session = model.session()
        self.n_left_out = 0
        self.stats: Stats | None = None

    def greet(self) -> None:
        note(f"{self.model.name}, context {self.model.context} tokens")
        note(language.plan_line(self.model.plan))
        note("/help says what can be typed; Ctrl-C ends an answer, Ctrl-D leaves")

    def go_on(self) -> None:
        """Read and answer until the person leaves."""
        was_interrupted = False
        while True:
            try:
                message = lines.read_message()
                was_interrupted = False
                if message.startswith("/"):
                    if self.command(message):
                        return
                elif message.strip():
                    self.answer(message)
            except EOFError:
                if sys.stdin.isatty():
                    print()
                return
            except KeyboardInterrupt:
                print()
                if was_interrupted:
                    return
                was_interrupted = True
                note("Ctrl-C once more leaves")
            except AreniteError as error:
                manner.say(str(error))

    def answer(self, message: str) -> None:
        """Say what the model says, and keep both; an answer that was ended early is kept as is."""
        from arenite.generate.generation import generate

        self.conversation.say("user", message)
        said = ""
        try:
            tokens = self.tokens()
            with _interrupts(self.model.cancel) as interrupted:
                words = self.model.tokenizer
                for piece in generate(
                    self.session, tokens, self.sampling, words, cancelled=interrupted
                ):
                    said += piece.text
                    show(piece.text)
        finally:
            if said:
                self.conversation.say("assistant", said)
                print()
            else:
                self.conversation.take_back()
        self.stats = piece.stats
        reason = ENDS.get(piece.finish or "", "" if said else "the model said nothing")
        if reason:
            note(f"({reason})")

    def tokens(self) -> list[int]:
        """What the model reads: as much of the conversation as leaves place for an answer."""
        context = self.model.context
        place = context - min(ANSWER_TOKENS, context // ANSWER_SHARE)
        tokens, n_left_out = self.conversation.fitting(self.model.chat_tokens, place)
        if n_left_out > self.n_left_out:
            note(f"(the context is full: the first {n_left_out} messages are left out from now on)")
        self.n_left_out = n_left_out
        return tokens

    def command(self, line: str) -> bool:
        """Do what a line that begins with a slash says; whether to leave."""
        name, _, rest = line.strip().partition(" ")
        match name:
            case "/quit" | "/exit" | "/bye":
                return True
            case "/help":
                note(HELP)
            case "/plan":
                note(str(self.model.plan))
            case "/stats":
                note("nothing was said yet" if self.stats is None else str(self.stats))
            case "/reset":
                self.conversation.clear()
                self.n_left_out = 0
                note("all is forgotten")
            case "/save":
                self.save(rest.strip())
            case _:
                note(f"{printable(name)} is none of /help /plan /stats /reset /save /quit")
        return False

    def save(self, name: str) -> None:
        if not name:
            note("/save needs the name of a file")
            return
        file = Path(name).expanduser()
        said = {"model": self.model.name, "messages": self.conversation.messages}
        text = json.dumps(said, indent=2, ensure_ascii=False) + "\n"
        try:
            manner.write_file(file, text)
        except OSError as error:
            manner.say(manner.told(error))
            return
        note(f"{len(self.conversation.messages)} messages are in {printable(file)}")


def show(text: str) -> None:
    """Text of a model at once, with control characters shown and not sent to the terminal."""
    sys.stdout.write(CONTROLS.sub(lambda found: printable(found[0]), text))
    sys.stdout.flush()


def note(text: str) -> None:
    """Something beside the conversation."""
    manner.err.print(Text(text, style="dim"), soft_wrap=True)


@contextmanager
def _interrupts(cancel: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """Ctrl-C inside cancels, and what is yielded tells; a second one interrupts as ever."""
    noted = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal noted
        if noted:
            raise KeyboardInterrupt
        noted = True
        cancel()

    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield lambda: noted
    finally:
        signal.signal(signal.SIGINT, before)
