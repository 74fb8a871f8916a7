"""`arenite chat`: talk with a model on a terminal, or line by line through a pipe."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arenite.cli import language, lines, output
from arenite.cli.options import (
    OPTIONS,
    AnyModelName,
    Choosing,
    Loading,
    sampling_of,
    spelled,
    spread,
)
from arenite.cli.slash import Slash, complete
from arenite.cli.typesetting import Typesetter
from arenite.errors import AreniteError, NotSupported

if TYPE_CHECKING:
    from arenite.generate import LanguageModel
    from arenite.generate.generation import Stats

#: Tokens of the context that are kept free for an answer, and the share of it they may take.
ANSWER_TOKENS, ANSWER_SHARE = 512, 4

#: Why an answer ended, where that is not what the model wanted.
ENDS = {
    "length": "ended after --max-tokens",
    "context": "ended: the context is full",
    "cancelled": "ended by Ctrl-C",
}


@spread
def chat(
    model: AnyModelName = None,
    system: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What the model is told first.")
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Show Markdown in answers as it is written.")
    ] = False,
    *,
    loading: Loading,
    choosing: Choosing,
) -> int:
    """Talk with a model.

    Without MODEL it is the one that `arenite` uses where none is named; it is fetched if it is
    not there. Answers go to standard output, all else to standard error. A paste is one message.
    /help lists what can be typed besides messages.
    """
    from arenite.program.cache import default_folder

    output.check_text("--system", system)
    output.check_text("--stop", *(choosing.stop or ()))
    with spelled(OPTIONS):
        sampling_of(choosing.given())
    path = language.obtain(model, loading.offline)
    name = language.title(model, path)
    with lines.open_lines(default_folder() / "chat_history", complete) as typed:
        with typed.unheard():
            loaded = language.load(path, name, loading, wanted="text")
        with loaded:
            talk = Talk(loaded, typed, name, choosing.given(), system, markdown=not plain)
            talk.greet()
            talk.go_on()
    return output.EXIT_DONE


class Talk:
    """One conversation on a terminal."""

    def __init__(
        self,
        model: LanguageModel,
        typed: lines.Lines,
        name: str,
        chosen: dict[str, Any],
        system: str | None,
        *,
        markdown: bool,
    ) -> None:
        from arenite.generate.history import Conversation

        if model.tokenizer.chat_template is None:
            raise NotSupported(
                f"{name} has no chat template: it was not made to be talked to; "
                f"`arenite generate {name} PROMPT` goes on from a prompt"
            )
        self.model, self.typed, self.name = model, typed, name
        self.chosen = chosen  # of the options of `Sampling`
        self.markdown = markdown
        self.conversation = Conversation(system)
        # Before anything is typed: that the model can be told this first.
        model.chat_tokens([*self.conversation.messages, {"role": "user", "content": "?"}])
        self.session = model.session()
        self.n_left_out = 0
        self.stats: Stats | None = None

    def greet(self) -> None:
        output.note(
            f"{self.name}, context {self.model.context} tokens",
            language.plan_line(self.model.plan),
            "/help says what can be typed; Ctrl-C ends an answer, Ctrl-D leaves",
        )

    def go_on(self) -> None:
        """Read and answer until the person leaves."""
        slash, typed = Slash(self), self.typed
        is_warned = False
        while True:
            try:
                message = typed.read_message()
                is_warned = False
                if message.is_command:
                    if slash.do(message.text):
                        return
                elif message.text.strip():
                    self.answer(message.text)
            except EOFError:
                if typed.is_terminal:
                    print(file=sys.stderr)
                return
            except KeyboardInterrupt:
                print(file=sys.stderr)
                if is_warned and not typed.took_text():
                    return
                # What was typed is gone, the talk is not: only two in a row mean to leave.
                is_warned = not typed.took_text()
                output.note("Ctrl-C once more leaves" if is_warned else "(Ctrl-D leaves)")
            except AreniteError as error:
                output.say(str(error))

    def answer(self, message: str) -> None:
        """Say what the model says, and keep both; an answer that was ended early is kept as is."""
        from arenite.generate.generation import generate

        self.conversation.say("user", message)
        said = ""
        shown = Answer(self.markdown)
        try:
            tokens = self.tokens()
            with self.typed.unheard(), _interrupts(self.model.cancel) as interrupted:
                words, sampling = self.model.tokenizer, sampling_of(self.chosen)
                for piece in generate(self.session, tokens, sampling, words, cancelled=interrupted):
                    said += piece.text
                    shown.write(piece.text)
        finally:
            if said:
                self.conversation.say("assistant", said)
                shown.finish()
            else:
                self.conversation.take_back()
        self.stats = piece.stats
        reason = ENDS.get(piece.finish or "", "" if said else "the model said nothing")
        if reason:
            output.note(f"({reason})")

    def tokens(self) -> list[int]:
        """What the model reads: as much of the conversation as leaves place for an answer."""
        context = self.model.context
        place = context - min(ANSWER_TOKENS, context // ANSWER_SHARE)
        tokens, n_left_out = self.conversation.fitting(self.model.chat_tokens, place)
        if n_left_out > self.n_left_out:
            output.note(
                f"(the context is full: the first {n_left_out} messages are left out from now on)"
            )
        self.n_left_out = n_left_out
        return tokens


class Answer:
    """An answer on standard output: as it is where a program reads it, set for a terminal."""

    def __init__(self, markdown: bool) -> None:
        console = output.out
        is_styled = markdown and console.is_terminal and not console.is_dumb_terminal
        self._set = Typesetter(console, markdown=is_styled) if console.is_terminal else None

    def write(self, text: str) -> None:
        if self._set is not None:
            self._set.write(text)
        else:
            sys.stdout.write(text)
            sys.stdout.flush()

    def finish(self) -> None:
        """End the last line."""
        if self._set is not None:
            self._set.finish()
        else:
            print()


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
