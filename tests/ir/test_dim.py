"""Dim: canonical forms, bounds and evaluation, judged by brute force over all variable values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import product as combinations
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenite.errors import BoundsError, InvalidArgument
from arenite.ir import dim
from arenite.ir.dim import (
    Dim,
    Found,
    Var,
    bounds,
    ceildiv,
    evaluate,
    exact_quotient,
    found_in,
    known_le,
    maximum,
    minimum,
    product,
    variables,
)

N, M, BATCH = Var("n", 1, 9), Var("m", 0, 6), Var("batch", 1, 64)
POINTS = [{"n": n, "m": m} for n, m in combinations(range(1, 10), range(7))]

Values: TypeAlias = list[int]
Case: TypeAlias = tuple[Dim, Values]  # an expression and its value at each point
Operation: TypeAlias = tuple[Callable[[Dim, Dim], Dim], Callable[[int, int], int]]

OPERATIONS: list[Operation] = [
    (lambda a, b: a + b, lambda a, b: a + b),
    (lambda a, b: a - b, lambda a, b: a - b),
    (lambda a, b: a * b, lambda a, b: a * b),
    (maximum, max),
    (minimum, min),
]
DIVISIONS: list[Operation] = [
    (lambda a, b: a // b, lambda a, b: a // b),
    (lambda a, b: a % b, lambda a, b: a % b),
    (ceildiv, lambda a, b: -(-a // b)),
]

leaves: st.SearchStrategy[Case] = st.one_of(
    st.integers(-5, 5).map(lambda value: (value, [value] * len(POINTS))),
    st.sampled_from([N, M]).map(lambda v: (v, [point[v.name] for point in POINTS])),
)


def combine(children: st.SearchStrategy[Case]) -> st.SearchStrategy[Case]:
    def binary(operation: Operation, a: Case, b: Case) -> Case:
        symbolic, concrete = operation
        return symbolic(a[0], b[0]), [concrete(x, y) for x, y in zip(a[1], b[1], strict=True)]

    def divide(operation: Operation, a: Case, divisor: Dim) -> Case:
        return binary(operation, a, (divisor, [evaluate(divisor, p) for p in POINTS]))

    divisors = st.one_of(
        st.integers(1, 8), st.sampled_from([N, M + 1, 2 * N + M, N * N, 2 * N * (M + 1)])
    )
    return st.one_of(
        st.builds(binary, st.sampled_from(OPERATIONS), children, children),
        st.builds(divide, st.sampled_from(DIVISIONS), children, divisors),
    )


cases = st.recursive(leaves, combine, max_leaves=7)


@given(cases)
@settings(max_examples=300, deadline=None)
def test_every_expression_evaluates_as_its_parts_do(case: Case) -> None:
    dim, values = case
    assert [evaluate(dim, point) for point in POINTS] == values


@given(cases)
@settings(max_examples=300, deadline=None)
def test_bounds_leave_out_no_value(case: Case) -> None:
    dim, values = case
    low, high = bounds(dim)
    assert low <= min(values)
    assert max(values) <= high


@given(cases, cases)
@settings(max_examples=200, deadline=None)
def test_equal_expressions_have_equal_values_and_one_text(a: Case, b: Case) -> None:
    left, right = a[0] + b[0], b[0] + a[0]
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)
    if a[0] == b[0]:
        assert a[1] == b[1]


@given(cases)
@settings(max_examples=200, deadline=None)
def test_the_written_form_means_the_same(case: Case) -> None:
    dim, values = case
    for point, value in list(zip(POINTS, values, strict=True))[::7]:
        assert eval(str(dim), {"max": max, "min": min, **point}) == value


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ((N + 1) * 2, 2 * N + 2),
        (N - N, 0),
        (N * M - M * N + 3, 3),
        ((4 * N) // 4, N),
        ((4 * N + 3) // 4, N),
        ((4 * N - 1) // 4, N - 1),
        ((N * M) // N, M),
        ((N * (M + 1)) // (M + 1), N),
        ((6 * N * N) // (2 * N), 3 * N),
        ((N * M) // (2 * N), M // 2),
        (N // 10, 0),
        (7 // (N + 8), 0),
        (M // (N + 6), 0),
        ((N // 2) // 3, N // 6),
        ((N // 2 + 1) // 3, (N + 2) // 6),
        ((4 * N + 2) // 6, (2 * N + 1) // 3),
        (N % 10, N),
        ((8 * N) % 4, 0),
        ((8 * N + M) % 8, M),
        (8 * (N // 8) + N % 8, N),
        (maximum(N, 0), N),
        (maximum(N, 1), N),
        (minimum(N, 9), N),
        (maximum(N, M + 10), M + 10),
        (maximum(N, M) + minimum(N, M), N + M),
        (maximum(2 * N, 2 * M), 2 * maximum(M, N)),
        (N - maximum(N - 4, 0), minimum(4, N)),
        (ceildiv(N, 1), N),
        (ceildiv(8 * N, 4), 2 * N),
    ],
)
def test_expressions_simplify(made: Dim, expected: Dim) -> None:
    assert made == expected


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (2 * BATCH + 1, "2*batch + 1"),
        (BATCH - 1, "batch - 1"),
        (3 - BATCH, "-batch + 3"),
        (BATCH * BATCH * 4, "4*batch*batch"),
        (BATCH // 2, "batch//2"),
        ((BATCH + 1) // 2, "(batch + 1)//2"),
        (BATCH % 8, "batch % 8"),
        (BATCH % 8 + N, "(batch % 8) + n"),
        (N - 2 * (BATCH % 8), "-2*(batch % 8) + n"),
        (maximum(BATCH, 4), "max(batch, 4)"),
        (minimum(BATCH, 4), "min(4, batch)"),
        (2 * maximum(BATCH, 4), "2*max(0, batch - 4) + 8"),
        (BATCH // N, "batch//n"),
        (100 // N, "(100)//n"),
    ],
)
def test_it_prints_as_one_would_write_it(dim: Dim, text: str) -> None:
    assert str(dim) == repr(dim) == text


@pytest.mark.parametrize(
    ("dim", "expected"),
    [
        (BATCH - BATCH // 2, (1, 32)),
        (BATCH % 8, (0, 7)),
        (minimum(BATCH, 4), (1, 4)),
        (BATCH - maximum(BATCH - 4, 0), (1, 4)),
        (minimum(BATCH * BATCH, 4) * (5 * N + 3), (8, 192)),
        (maximum(BATCH - 60, M) * (N - 10), (-54, 0)),
        ((BATCH - 1) // 2 + 1, (1, 32)),
        (BATCH * BATCH - 3, (-2, 4093)),
        (BATCH // N, (0, 64)),
        (BATCH - BATCH // N, (-63, 64)),
        (7, (7, 7)),
    ],
)
def test_bounds_are_tight_where_it_matters(dim: Dim, expected: tuple[int, int]) -> None:
    assert bounds(dim) == expected


def test_numbers_stay_numbers() -> None:
    assert type(N - N + 3) is int
    assert type(ceildiv(7, 2)) is int
    assert (maximum(3, 4), minimum(3, 4), product([2, 3, 4]), product([])) == (4, 3, 24, 1)


def test_variables_are_found_everywhere() -> None:
    assert variables(maximum(BATCH // N, M) * 2) == {BATCH, N, M}
    assert variables(5) == frozenset()


def test_a_size_found_while_running_is_no_variable_of_its_name() -> None:
    given, found = Var("rows", 0, 9), Found("rows", 0, 9)
    assert given != found
    uses: list[Callable[[Dim], Dim]] = [
        lambda x: x + 1,
        lambda x: 3 * x,
        lambda x: x // 2,
        lambda x: (x + 1) // (x + 2),
    ]
    for use in uses:
        assert found_in(use(given)) == set()
        assert found_in(use(found)) == {found}
        assert found_in(use(given)) == set()


def test_arithmetic_that_was_done_before_is_not_done_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n = Var("asked_for_once", 1, 99)

    def sizes() -> list[Dim]:
        return [3 * n * (n + 1), (7 * n + 5) // 4, (n + 8) // (2 * n + 1), n - 4 * n]

    before = sizes()
    monkeypatch.setattr(dim, "_of_terms", None)  # which makes every sum
    assert sizes() == before


def test_known_le_needs_proof() -> None:
    assert known_le(N, 9)
    assert known_le(N, N + M)
    assert not known_le(N, M)
    assert known_le(3, 3)
    assert not known_le(4, 3)


def test_bounds_of_very_many_factors_are_found() -> None:
    """Trying all their ends would take longer than anyone waits."""
    sizes = [Var(f"size{k}", 1, 3) for k in range(60)]
    assert bounds(product(sizes) - sizes[0] * sizes[1]) == (1 - 9, 3**60 - 1)
    assert bounds(product(sizes[:1] * 60) - sizes[0]) == (1 - 3, 3**60 - 1)


def test_evaluation_checks_bounds_and_names_the_variable() -> None:
    with pytest.raises(BoundsError, match=r"batch = 65 is outside its bounds 1\.\.64"):
        evaluate(BATCH + 1, {"batch": 65})
    with pytest.raises(BoundsError, match="variable 'batch' has no value; bound are: n"):
        evaluate(BATCH + 1, {"n": 2})


@given(cases, cases)
@settings(deadline=None)
def test_an_exact_quotient_holds_everywhere(a: Case, b: Case) -> None:
    found = exact_quotient(a[0], b[0])
    if found is not None:
        values = [evaluate(found, point) for point in POINTS]
        assert [q * y for q, y in zip(values, b[1], strict=True)] == a[1]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (6, 3, 2),
        (7, 3, None),
        (0, 3, 0),
        (0, 0, 1),
        (5, 0, None),
        (M, M, 1),
        (M * 4, M, 4),
        (M * 4, M * 2, 2),
        (M * N, M, N),
        (M * 6, 2, M * 3),
        (5, M, None),
        (M + 1, M, None),
        (M * 2, 4, None),
    ],
)
def test_exact_quotients(a: Dim, b: Dim, expected: Dim | None) -> None:
    assert exact_quotient(a, b) == expected


def test_a_divisor_must_be_positive() -> None:
    with pytest.raises(BoundsError, match=r"n // m: the divisor must be positive, it may be 0"):
        _ = N // M
    with pytest.raises(BoundsError, match="it may be -2"):
        _ = N // -2


def test_a_var_is_checked() -> None:
    with pytest.raises(InvalidArgument, match="identifier"):
        Var("a b", 0, 1)
    with pytest.raises(InvalidArgument, match=r"low <= high, not 3\.\.2"):
        Var("a", 3, 2)
    assert Var("a", 0, 1) == Var("a", 0, 1) != Var("a", 0, 2)
    number: Any = 1.5
    for operation in (operator.add, operator.sub, operator.mul, operator.floordiv):
        with pytest.raises(TypeError):
            operation(N, number)


def test_sums_of_many_sizes_that_share_no_variable() -> None:
    """As of a detector that keeps some of each class: a few more classes cost a few more steps."""
    each = [Var(f"found_{k}", 0, 3000) for k in range(90)]
    kept = sum((minimum(one, 300) for one in each), start=0)
    assert bounds(kept) == (0, 90 * 300)
    left = sum((one - minimum(one, 300) for one in each), start=0)
    assert bounds(left) == (0, 90 * 2700)
    assert known_le(kept, sum(each, start=0))


def test_bounds_of_parts_that_share_a_variable_are_those_of_the_whole() -> None:
    a, b, c = Var("a", 0, 3), Var("b", 1, 4), Var("c", 0, 5)
    dim = minimum(a, b) - minimum(a, 2) + 3 * c - 2 * minimum(c, 3) + 1
    values = [
        evaluate(dim, {"a": x, "b": y, "c": z})
        for x in range(4)
        for y in range(1, 5)
        for z in range(6)
    ]
    low, high = bounds(dim)
    assert low <= min(values) <= max(values) <= high
