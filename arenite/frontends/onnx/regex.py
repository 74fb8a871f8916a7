"""Regular expressions in time that grows with the text and the pattern, whatever these are.

RE2's syntax, as far as matching whole texts needs it: literals, classes, `.`, groups, alternatives,
repetition, `^ $ \\b \\B \\A \\z`. A pattern becomes states (Thompson's construction); a text is
matched by the set of states it can be in. Nothing is tried and taken back, so no pattern and no
text from a stranger takes long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

from arenite.errors import InvalidArgument

MAX_STATES = 10_000
MAX_REPEAT = 1000  # as in RE2
MAX_DEPTH = 100

Test: TypeAlias = Callable[[str], bool]
#: Of a place in a text: (the character before, the one behind), "" at the ends.
Assertion: TypeAlias = Callable[[str, str], bool]

_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_CLASSES: dict[str, Test] = {
    "d": lambda c: "0" <= c <= "9",
    "w": lambda c: c in _WORD,
    "s": lambda c: c in "\t\n\f\r ",
}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_NAMED: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "blank": lambda c: c in "\t ",
    "digit": _CLASSES["d"],
    "lower": lambda c: "a" <= c <= "z",
    "punct": lambda c: c.isascii() and c.isprintable() and not c.isalnum() and c != " ",
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _CLASSES["w"],
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}


def _is_boundary(before: str, behind: str) -> bool:
    return (before != "" and before in _WORD) != (behind != "" and behind in _WORD)


_ASSERTIONS: dict[str, Assertion] = {
    "^": lambda before, behind: before == "",
    "$": lambda before, behind: behind == "",
    "A": lambda before, behind: before == "",
    "z": lambda before, behind: behind == "",
    "b": _is_boundary,
    "B": lambda before, behind: not _is_boundary(before, behind),
}


@dataclass(slots=True)
class _State:
    """Goes on over a character (`test`), at a place (`assertion`), or freely."""

    test: Test | None = None
    assertion: Assertion | None = None
    to: list[int] | None = None


class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._states: list[_State] = []
        parser = _Parser(text, self._states)
        self._start, self._end = parser.parsed()

    def matches(self, text: str) -> bool:
        """Whether it matches the whole text."""
        current = {self._start}
        before = ""
        for character in text:
            reached = self._closure(current, before, character)
            current = set()
            for number in reached:
                state = self._states[number]
                if state.test is not None and state.test(character):
                    current.update(state.to or ())
            if not current:
                return False
            before = character
        return self._end in self._closure(current, before, "")

    def _closure(self, states: set[int], before: str, behind: str) -> set[int]:
        """What is reached without a character."""
        reached = set(states)
        pending = list(states)
        while pending:
            state = self._states[pending.pop()]
            if state.test is not None:
                continue
            if state.assertion is not None and not state.assertion(before, behind):
                continue
            for number in state.to or ():
                if number not in reached:
                    reached.add(number)
                    pending.append(number)
        return reached


#: Built anew for each repetition: (first state, last state).
_Build: TypeAlias = Callable[[], tuple[int, int]]


class _Parser:
    def __init__(self, text: str, states: list[_State]) -> None:
        self.text = text
        self.states = states
        self.at = 0
        self.depth = 0

    def parsed(self) -> tuple[int, int]:
        build = self._alternatives()
        if self.at < len(self.text):
            self._fail("a ) without its (")
        return build()

    def _fail(self, reason: str) -> NoReturn:
        raise InvalidArgument(f"pattern {self.text[:80]!r}, character {self.at}: {reason}")

    def _peek(self) -> str:
        return self.text[self.at] if self.at < len(self.text) else ""

    def _next(self) -> str:
        if self.at >= len(self.text):
            self._fail("the pattern ends here")
        self.at += 1
        return self.text[self.at - 1]

    # States.

    def _new(self, state: _State) -> int:
        if len(self.states) >= MAX_STATES:
            self._fail(f"it takes more than {MAX_STATES} states")
        self.states.append(state)
        return len(self.states) - 1

    def _one(self, state: _State) -> tuple[int, int]:
        """A state that leads to a new one."""
        last = self._new(_State(to=[]))
        state.to = [last]
        return self._new(state), last

    def _joined(self, parts: list[_Build]) -> tuple[int, int]:
        first = last = self._new(_State(to=[]))
        for part in parts:
            start, end = part()
            (self.states[last].to or self._free(last)).append(start)
            last = end
        return first, last

    def _free(self, number: int) -> list[int]:
        to: list[int] = []
        self.states[number].to = to
        return to

    # Syntax.

    def _alternatives(self) -> _Build:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self._fail(f"groups are nested more than {MAX_DEPTH} deep")
        choices = [self._sequence()]
        while self._peek() == "|":
            self.at += 1
            choices.append(self._sequence())
        self.depth -= 1

        def build() -> tuple[int, int]:
            last = self._new(_State(to=[]))
            starts = []
            for choice in choices:
                start, end = choice()
                starts.append(start)
                (self.states[end].to or self._free(end)).append(last)
            return self._new(_State(to=starts)), last

        return choices[0] if len(choices) == 1 else build

    def _sequence(self) -> _Build:
        parts: list[_Build] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom()))
        return lambda: self._joined(parts)

    def _repeated(self, atom: _Build) -> _Build:
        while self._peek() in ("*", "+", "?", "{"):
            begin = self.at
            low, high = self._counts()
            if high == -2:  # a { that is itself
                self.at = begin
                break
            if self._peek() == "?":  # as few as can be: the same where all must match
                self.at += 1
            atom = self._times(atom, low, high)
        return atom

    def _counts(self) -> tuple[int, int]:
        """(least, most), -1 without end; (0, -2) where a brace is a character."""
        mark = self._next()
        if mark != "{":
            return {"*": (0, -1), "+": (1, -1), "?": (0, 1)}[mark]
        end = self.text.find("}", self.at)
        body = self.text[self.at : end] if end >= 0 else ""
        low, comma, high = body.partition(",")
        if not low.isdecimal() or not (high == "" or high.isdecimal()) or len(body) > 12:
            return 0, -2
        self.at = end + 1
        least = int(low)
        most = least if not comma else int(high) if high else -1
        if least > MAX_REPEAT or most > MAX_REPEAT or -1 < most < least:
            self._fail(f"a repetition of {body}; at most {MAX_REPEAT}")
        return least, most

    def _times(self, atom: _Build, low: int, high: int) -> _Build:
        def build() -> tuple[int, int]:
            first = last = self._new(_State(to=[]))
            for _ in range(low):
                start, end = atom()
                (self.states[last].to or self._free(last)).append(start)
                last = end
            final = self._new(_State(to=[]))
            if high == -1:
                start, end = atom()
                again = self._new(_State(to=[start, final]))
                (self.states[last].to or self._free(last)).append(again)
                (self.states[end].to or self._free(end)).append(again)
                return first, final
            for _ in range(high - low):
                start, end = atom()
                (self.states[last].to or self._free(last)).extend((start, final))
                last = end
            (self.states[last].to or self._free(last)).append(final)
            return first, final

        return build

    def _atom(self) -> _Build:
        mark = self._next()
        if mark == "(":
            return self._group()
        if mark == "[":
            return self._tested(self._class())
        if mark == ".":
            return self._tested(lambda c: c != "\n")
        if mark in "^$":
            return self._asserted(_ASSERTIONS[mark])
        if mark in "*+?":
            self._fail(f"nothing to repeat before {mark}")
        if mark == "\\":
            escaped = self._next()
            if escaped in _ASSERTIONS and escaped not in "^$":
                return self._asserted(_ASSERTIONS[escaped])
            self.at -= 1
            return self._tested(self._escape())
        return self._tested(lambda c: c == mark)

    def _tested(self, test: Test) -> _Build:
        return lambda: self._one(_State(test=test))

    def _asserted(self, assertion: Assertion) -> _Build:
        return lambda: self._one(_State(assertion=assertion))

    def _group(self) -> _Build:
        if self._peek() == "?":
            self.at += 1
            rest = self.text[self.at :]
            if rest.startswith("P<") and ">" in rest:
                self.at += rest.index(">") + 1
            elif rest.startswith(":"):
                self.at += 1
            else:
                self._fail("a group of a kind that is not known; (?: and (?P<name> are")
        inner = self._alternatives()
        if self._peek() != ")":
            self._fail("a ( without its )")
        self.at += 1
        return inner

    def _escape(self) -> Test:
        """What a backslash before the next character means, as a test of a character."""
        mark = self._next()
        if mark.lower() in _CLASSES:
            test = _CLASSES[mark.lower()]
            return test if mark.islower() else lambda c: not test(c)
        literal = self._literal(mark)
        return lambda c: c == literal

    def _literal(self, mark: str) -> str:
        if mark in _ESCAPES:
            return _ESCAPES[mark]
        if mark == "x":
            digits = self._next()
            if digits == "{":
                end = self.text.find("}", self.at)
                digits, self.at = self.text[self.at : max(end, 0)], end + 1
            else:
                digits += self._next()
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                self._fail(f"\\x{digits[:8]} is no character")
        if mark.isalnum():
            self._fail(f"\\{mark} is not known here")
        return mark

    def _class(self) -> Test:
        is_inverted = self._peek() == "^"
        self.at += is_inverted
        tests: list[Test] = []
        begin = self.at
        while self._peek() != "]" or self.at == begin:
            tests.append(self._member())
        self.at += 1
        return lambda c: any(test(c) for test in tests) != is_inverted

    def _member(self) -> Test:
        if self.text.startswith("[:", self.at):
            end = self.text.find(":]", self.at)
            name = self.text[self.at + 2 : end] if end >= 0 else ""
            test = _NAMED.get(name)
            if test is None:
                self._fail("a class of characters that is not known")
            self.at = end + 2
            return test
        mark = self._next()
        if mark == "\\":
            if self._peek().lower() in _CLASSES:
                return self._escape()
            mark = self._literal(self._next())
        if self._peek() == "-" and self.text[self.at + 1 : self.at + 2] not in ("]", ""):
            self.at += 1
            last = self._next()
            if last == "\\":
                last = self._literal(self._next())
            if last < mark:
                self._fail(f"the range {mark}-{last} goes backwards")
            return lambda c: mark <= c <= last
        return lambda c: c == mark
