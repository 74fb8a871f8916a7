"""Every error Arenite raises on purpose.

One hierarchy rooted in `AreniteError`; each class also inherits the builtin a Python user would
catch. A message says what was asked, what is wrong, where, and what to do. It is shown and never
obeyed: what a terminal would act on in a name or a text of a file is spelled out.
"""

#: Categories of characters that act on a terminal or on the order of text: controls, formats, lone
#: surrogates, separators of lines and of paragraphs.
_ACTING = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
#: Those of them that text needs: lines, tabs, and what joins letters or emoji or keeps them apart.
_NEEDED = frozenset("\n\t\u200c\u200d")


def escaped(text: str) -> str:
    """Text as it is, but for characters that a terminal would act on: they are spelled out. Lines
    stay lines; see `printable` for what must stay on one."""
    if text.isprintable():
        return text
    return "".join(_spelled(c) if is_acting(c) else c for c in text)


def printable(name: object) -> str:
    """A name from a file on one line, with every control character spelled out."""
    return "".join(c if c.isprintable() else _spelled(c) for c in str(name))


def is_acting(character: str) -> bool:
    """Whether a terminal would act on a character."""
    from unicodedata import category

    return category(character) in _ACTING and character not in _NEEDED


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class AreniteError(Exception):
    """Root of all errors raised by Arenite."""

    def __str__(self) -> str:
        return escaped(super().__str__())


class InvalidArgument(AreniteError, ValueError):
    """An argument that no device and no plan could accept."""


class InvalidFile(AreniteError, ValueError):
    """A file that is not what it claims to be: the message names file, place and reason."""


class FileMissing(InvalidFile, FileNotFoundError):
    """A file that is not there, or can't be opened."""


class FileChanged(AreniteError, OSError):
    """A file differs from what it was when it was opened."""


class NotAllocated(AreniteError, RuntimeError):
    """The bytes of a lazily allocated buffer were asked for before they exist."""


class NotCpuAccessible(AreniteError, RuntimeError):
    """A zero-copy host view was asked of memory the host cannot reach; copy it out instead."""


class TypeMismatch(AreniteError, TypeError):
    """A typed access with another dtype than the buffer's; reinterpreting bytes is a view."""


class InvalidView(AreniteError, ValueError):
    """A view that would leave its parent's bytes or whose shape does not fill its bytes."""


class SizeMismatch(AreniteError, ValueError):
    """A copy or an access whose byte count differs from what the other side has."""


class ReadOnly(AreniteError, ValueError):
    """A write to memory that is mapped or borrowed read-only."""


class DeviceUnavailable(AreniteError, RuntimeError):
    """A device that does not exist here, with the reason."""


class NoSuchAdapter(DeviceUnavailable):
    """A device that is called as none of those that are there."""


class OutOfMemory(AreniteError, MemoryError):
    """An allocation failed: the system did not give the bytes."""


class InvalidPlan(AreniteError, ValueError):
    """A memory plan that breaks a rule: two values share bytes while both live, or the like."""


class RaceFound(AreniteError, RuntimeError):
    """Two launches touch the same bytes, one of them writing, and nothing orders them."""


class DoesNotFit(AreniteError, MemoryError):
    """No plan within the capacity is known; says what fills the memory when it is fullest."""

    def __init__(
        self,
        message: str,
        *,
        capacity: int,
        lower_bound: int,
        smallest_known: int,
        peak_tick: int,
        live: tuple[tuple[int | str, int], ...],
        plan: object = None,
    ) -> None:
        super().__init__(message)
        self.capacity = capacity  # bytes asked for
        self.lower_bound = lower_bound  # bytes no plan can go below
        self.smallest_known = smallest_known  # bytes of the best plan found
        self.peak_tick = peak_tick  # when the most bytes are live
        self.live = live  # (value id, bytes) live at that tick, largest first
        self.plan = plan  # the best plan found, which needs `smallest_known` bytes


class CompileFailed(AreniteError, RuntimeError):
    """A kernel could not be compiled: the message names it and quotes the compiler."""


class BadObject(CompileFailed):
    """An object whose code would not run at any address by itself: names the kernel and why."""


class DamagedCache(InvalidFile):
    """A compiled model's file that does not pass its checks; it is dropped and built again."""


class InvalidTable(AreniteError, ValueError):
    """A launch table that breaks a rule: the message names the entry."""


class RunFailed(AreniteError, RuntimeError):
    """A kernel or a check reported an error while running: the message names the site."""


class RunCancelled(RunFailed):
    """A run that `cancel()` ended; what it ran on can be called again."""


class Busy(AreniteError, RuntimeError):
    """There is no place now for what was asked, and none to wait in; try again later."""


class HostCallFailed(AreniteError, ValueError):
    """A function called from within a program returned what it was not to."""


class UndeclaredAccess(AreniteError, RuntimeError):
    """A kernel wrote or read bytes it did not declare: the message names it and the bytes."""


class ShapeMismatch(AreniteError, ValueError):
    """Shapes or axes that do not go together; the message has the shapes."""


class BoundsError(AreniteError, ValueError):
    """A size outside the bounds its variable declares, or a division that may be by zero."""


class IndexOutOfRange(AreniteError, IndexError):
    """An index that points outside its axis."""

    code = 1  # what a kernel that meets one sets as its error


class InvalidGraph(AreniteError, ValueError):
    """A graph that breaks a rule of the IR; the message names the node."""


class NotSupported(AreniteError, TypeError):
    """A call Arenite understands and declines, with the reason and what to do instead."""


class NotCompiled(AreniteError, NotImplementedError):
    """Something the graph can say and no kernel can do yet: names the op and the dtype."""
