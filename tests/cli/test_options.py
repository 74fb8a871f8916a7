"""Groups of options: they stand on the command line one by one, and come to a command as one."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Annotated, get_args, get_type_hints

import pytest
import typer

from arenite.cli.options import Choosing, Kv, Loading, Planning, spelled, spread
from arenite.errors import InvalidArgument
from arenite.generate.model import KV_DTYPES
from arenite.generate.sampling import Sampling

HINTS = get_type_hints(Choosing, include_extras=True)
SHOWN = {name: get_args(hint)[1].show_default for name, hint in HINTS.items()}


@pytest.mark.parametrize("name", [name for name, shown in SHOWN.items() if shown is not True])
def test_the_defaults_in_the_help_are_those_that_hold(name: str) -> None:
    assert SHOWN[name] == str(getattr(Sampling(), name))


def test_what_is_chosen_by_nothing_given_is_what_sampling_has() -> None:
    assert {field.name for field in fields(Choosing)} <= {field.name for field in fields(Sampling)}
    assert Choosing().given() == {}
    assert Sampling(**Choosing(top_k=3).given()) == Sampling(top_k=3)


def test_a_command_gets_its_groups_and_the_command_line_their_options() -> None:
    told: list[object] = []

    @spread
    def command(
        model: Annotated[str, typer.Argument()], *, loading: Loading, choosing: Choosing
    ) -> int:
        told.extend([model, loading, choosing])
        return 3

    names = [field.name for group in (Loading, Choosing) for field in fields(group)]
    shown = inspect.signature(command).parameters
    assert list(shown) == ["model", *names]
    given = {name: shown[name].default for name in names}
    assert command(model="m", **given | {"threads": 2, "top_p": 0.5}) == 3
    assert told == ["m", Loading(threads=2), Choosing(top_p=0.5)]


def test_what_keys_and_values_can_be_kept_as_is_what_a_model_takes() -> None:
    assert [kind.value for kind in Kv] == list(KV_DTYPES)
    assert type(Planning(kv=Kv.INT8).given()["kv"]) is str


def test_an_error_names_the_option_and_leaves_the_rest() -> None:
    names = {"top_p": "--top-p", "regex": "--regex", "json_schema": "--schema f"}
    for told, shown in (
        ("top_p is 7; regex: no", "--top-p is 7; regex: no"),
        ("json_schema and regex are given", "--schema f and --regex are given"),
        ("regex can't be used: top_p", "--regex can't be used: top_p"),
        ("a regex is wrong", "a regex is wrong"),
    ):
        with pytest.raises(InvalidArgument) as caught, spelled(names):
            raise InvalidArgument(told)
        assert str(caught.value) == shown


def test_options_that_are_not_passed_on_are_left_out() -> None:
    planning = Planning(memory="1GiB", offline=True)
    assert planning.given("offline") == {"memory": "1GiB"}
