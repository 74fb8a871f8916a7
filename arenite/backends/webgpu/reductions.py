"""Sums over a group, as WGSL functions: a tree in shared memory, whose order is always the same.

lane    0   1   2   3   4   5   6   7
        └───┼───┼───┼───┘   │   │   │      first half with second half,
            └───┼───┼───────┘   │   │      then again, until the first has all;
        ...                                every thread gets what that one has
"""

from __future__ import annotations

from arenite.dtype import DType


def combine_text(op: str, dtype: DType, kind: str, both: str, threads: int) -> tuple[str, str]:
    """The name and the text of a function that combines what the threads have; `both` is how `a`
    and `b` are combined. Truths are shared as words: NVIDIA's driver loses shared bools."""
    name = f"group_{op}_{dtype.name}"
    word, as_word, as_value = _as_shared(kind)

    def shared(at: str) -> str:
        return as_value.format(f"{name}_of[{at}]")

    return (
        name,
        f"""var<workgroup> {name}_of: array<{word}, {threads}>;
fn {name}(lane: u32, own: {kind}) -> {kind} {{
  {name}_of[lane] = {as_word.format("own")};
  workgroupBarrier();
  for (var half = {threads // 2}u; half > 0u; half = half >> 1u) {{
    if (lane < half) {{
      let a = {shared("lane")};
      let b = {shared("lane + half")};
      {name}_of[lane] = {as_word.format(both)};
    }}
    workgroupBarrier();
  }}
  let whole = {shared("0")};
  workgroupBarrier();
  return whole;
}}""",
    )


def search_text(op: str, kind: str, threads: int) -> tuple[str, str]:
    """The same for the place of the greatest or the least; also the rule by which two are compared,
    `better_` and the name."""
    name = f"group_{op}_{kind}"
    sign = ">" if op == "argmax" else "<"
    word, as_word, as_value = _as_shared(kind)

    def shared(at: str) -> str:
        return as_value.format(f"{name}_best[{at}]")

    if kind == "bool":  # which WGSL does not order
        wins, ties = f"u32(value) {sign} u32(best)", "value == best"
    elif kind.startswith("f"):
        # Comparisons with NaN may say anything: its tests decide.
        is_nan = f"is_nan_{kind}"
        wins = f"!{is_nan}(best) & ({is_nan}(value) | (value {sign} best))"
        ties = f"select((value == best) & !{is_nan}(best), {is_nan}(best), {is_nan}(value))"
    else:
        wins, ties = f"value {sign} best", "value == best"
    return (
        name,
        f"""struct Found_{name} {{ best: {kind}, at: i32 }}
fn better_{name}(best: {kind}, at: i32, value: {kind}, index: i32) -> Found_{name} {{
  let wins = {wins};
  let ties = {ties};
  if (wins || (ties && index < at)) {{ return Found_{name}(value, index); }}
  return Found_{name}(best, at);
}}
var<workgroup> {name}_best: array<{word}, {threads}>;
var<workgroup> {name}_at: array<i32, {threads}>;
fn {name}(lane: u32, best: {kind}, at: i32) -> Found_{name} {{
  {name}_best[lane] = {as_word.format("best")};
  {name}_at[lane] = at;
  workgroupBarrier();
  for (var half = {threads // 2}u; half > 0u; half = half >> 1u) {{
    if (lane < half) {{
      let other = lane + half;
      let one = better_{name}({shared("lane")}, {name}_at[lane],
                              {shared("other")}, {name}_at[other]);
      {name}_best[lane] = {as_word.format("one.best")};
      {name}_at[lane] = one.at;
    }}
    workgroupBarrier();
  }}
  let whole = Found_{name}({shared("0")}, {name}_at[0]);
  workgroupBarrier();
  return whole;
}}""",
    )


def _as_shared(kind: str) -> tuple[str, str, str]:
    """What a type is in shared memory, and both ways between."""
    if kind == "bool":
        return "u32", "select(0u, 1u, {})", "({} != 0u)"
    return kind, "{}", "{}"


def team_texts(team: int, threads: int, subgroup: int) -> list[str]:
    """Functions that combine what the lanes of a team have, neighbours whose number is a power of
    two; all lanes of a group call them together. Where subgroups have one size for sure, that many
    are combined by the device, in an order of its own that does not change."""
    made = []
    for op, both in (("add", "a + b"), ("max", "max(a, b)")):
        name, of = f"team_{op}_{team}", f"team_{op}_{team}_of"
        head = f"fn {name}(lane: u32, own: f32) -> f32 {{"
        if subgroup == team:
            made.append(f"{head} return subgroup{op.title()}(own); }}")
            continue
        if subgroup > team:
            steps = [
                f"{{ let a = whole; let b = subgroupShuffleXor(whole, {1 << k}u);"
                f" whole = {both}; }}"
                for k in reversed(range(team.bit_length() - 1))
            ]
            made.append("\n".join([head, "var whole = own;", *steps, "return whole;", "}"]))
            continue
        begun = f"subgroup{op.title()}(own)" if subgroup else "own"
        made.append(
            f"""var<workgroup> {of}: array<f32, {threads}>;
{head}
  let member = lane % {team}u;
  {of}[lane] = {begun};
  workgroupBarrier();
  for (var half = {team // 2}u; half >= {max(subgroup, 1)}u; half = half >> 1u) {{
    if (member < half) {{
      let a = {of}[lane];
      let b = {of}[lane + half];
      {of}[lane] = {both};
    }}
    workgroupBarrier();
  }}
  let whole = {of}[lane - member];
  workgroupBarrier();
  return whole;
}}"""
        )
    return made
