"""NamedTuple as `typing` has it, whose classes are made in a tenth of the time: that of `typing`
compiles every annotation and a constructor for each class, some 0.2 ms, and a start makes sixty.

A class has its fields as they are written; its constructor, which takes 0.1 ms to compile, is made
once some of it are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature
    from types import CodeType
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter
    from functools import cache
    from types import FunctionType

    #: Descriptors of fields by number, which all classes share.
    _FIELDS = [_tuplegetter(k, f"Field number {k}") for k in range(24)]

    #: How many of a class are made without a constructor of its own.
    _FEW = 8

    class _Signature:
        """What `inspect` shows of a class, whose constructor may not be there yet."""

        def __get__(self, _: Any, kind: type[_Record]) -> Signature:
            from inspect import signature

            called = signature(kind._constructor())
            return called.replace(parameters=[*called.parameters.values()][1:])

    class _Record(tuple):
        """What all records have."""

        __slots__ = ()
        __signature__ = _Signature()

        def __new__(cls, *values: Any, **named: Any) -> _Record:
            fields = cls._fields
            given = cls._field_defaults | dict(zip(fields, values, strict=False)) | named
            n_given = len(values) + len(named)
            is_right = n_given <= len(given) == len(fields) and given.keys() == {*fields}
            cls._n_made += 1
            if is_right and cls._n_made <= _FEW and named.keys().isdisjoint(fields[: len(values)]):
                return tuple.__new__(cls, map(given.__getitem__, fields))
            return cls._constructor()(cls, *values, **named)

        @classmethod
        def _constructor(cls) -> Any:
            """That of the class, which it has from now on."""
            kind = next(one for one in cls.__mro__ if "_fields" in vars(one))
            code = _code_for(len(kind._fields)).replace(co_varnames=("_cls", *kind._fields))
            defaults = tuple(kind._field_defaults.values())
            made = FunctionType(code, {"_new": tuple.__new__}, "__new__", defaults)
            made.__annotations__ = kind.__annotations__
            kind.__new__ = staticmethod(made)
            return made

        @classmethod
        def _make(cls, values: Any) -> _Record:
            return cls(*values)

        def _replace(self, /, **changes: Any) -> _Record:
            return type(self)(**self._asdict() | changes)

        def _asdict(self) -> dict[str, Any]:
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self) -> str:
            shown = ", ".join(f"{name}={value!r}" for name, value in self._asdict().items())
            return f"{type(self).__name__}({shown})"

        def __getnewargs__(self) -> tuple[Any, ...]:
            return tuple(self)

    @cache
    def _code_for(n_fields: int) -> CodeType:
        """Of a constructor; classes of as many fields differ in names alone."""
        names = ", ".join(f"_{k}" for k in range(n_fields))
        return eval(f"lambda _cls, {names}: _new(_cls, ({names},))").__code__

    class _Maker(type):
        def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> type:
            fields = tuple(members["__annotations__"])
            while len(_FIELDS) < len(fields):
                _FIELDS.append(_tuplegetter(len(_FIELDS), f"Field number {len(_FIELDS)}"))
            members["_field_defaults"] = {one: members[one] for one in fields if one in members}
            members["_fields"] = members["__match_args__"] = fields
            members["_n_made"] = 0
            members["__slots__"] = ()
            members |= zip(fields, _FIELDS, strict=False)
            return type(name, (_Record, *bases[1:]), members)

    NamedTuple = type.__new__(_Maker, "NamedTuple", (), {})
