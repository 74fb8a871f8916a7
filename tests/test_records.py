"""Records do what `typing.NamedTuple` does: the same class body with both."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from typing import Any

import pytest

from arenite import records

BODY = '''
class Point(NamedTuple):
    """A place."""

    x: int
    y: float = 2.5
    name: str | None = None

    @property
    def sum(self) -> float:
        return self.x + self.y

    def moved(self, by: int) -> Point:
        return self._replace(x=self.x + by)

    def __str__(self) -> str:
        return f"at {self.x}"
'''


def made(base: Any) -> Any:
    """The class, made with this NamedTuple, where pickle finds it."""
    code = compile("from __future__ import annotations\n" + BODY, __file__, "exec")
    names = {"NamedTuple": base, "__name__": __name__}
    exec(code, names)
    kind = names["Point"]
    globals()["Point"] = kind
    return kind


@pytest.mark.parametrize("n_before", [0, 1, 20])
@pytest.mark.parametrize(
    "shown",
    [
        lambda kind: kind(1),
        lambda kind: repr(kind(1, name="a")),
        lambda kind: str(kind(x=1, y=0.5)),
        lambda kind: (kind(1).x, kind(1).y, kind(1).name, kind(3).sum),
        lambda kind: kind(1).moved(4),
        lambda kind: kind(1)._asdict(),
        lambda kind: kind._make([1, 2, "b"]),
        lambda kind: (kind._fields, kind._field_defaults, kind.__match_args__, kind.__doc__),
        lambda kind: kind(1) == (1, 2.5, None) and hash(kind(1)) == hash((1, 2.5, None)),
        lambda kind: [*kind(1)],
        lambda kind: pickle.loads(pickle.dumps(kind(1))),
        lambda kind: type(copy.copy(kind(1))) is kind,
        lambda kind: [
            (one.name, one.default, one.kind) for one in inspect.signature(kind).parameters.values()
        ],
        lambda kind: type("Other", (kind,), {"z": 1})(5)._replace(x=2),
        lambda kind: type("Other", (kind,), {"z": 1})(5).z,
    ],
)
def test_a_record_is_a_named_tuple(shown: Any, n_before: int) -> None:
    found = []
    for base in (typing.NamedTuple, records.NamedTuple):
        kind = made(base)
        for _ in range(n_before):
            kind(7)
        one = shown(kind)
        found.append((repr(one), one if not isinstance(one, str) else None))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda kind: kind(),
        lambda kind: kind(1, 2, "a", 4),
        lambda kind: kind(1, z=2),
        lambda kind: kind(1, x=2),
        lambda kind: setattr(kind(1), "x", 2),
        lambda kind: setattr(kind(1), "other", 2),
        lambda kind: kind._make([]),
    ],
)
def test_what_is_wrong_for_one_is_wrong_for_the_other(wrong: Any) -> None:
    for base in (typing.NamedTuple, records.NamedTuple):
        with pytest.raises((AttributeError, TypeError)):
            wrong(made(base))
