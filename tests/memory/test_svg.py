"""The picture of a plan: to scale, named, and in one piece whatever the names."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from arenite import memory
from arenite.memory import Alias, Lifetime, MemoryPlan, Value, ValueId, svg
from arenite.memory.canvas import byte_marks, round_step, tick_marks
from arenite.memory.groups import kind_of, layer_of, runs_of
from tests.memory.problems import graph_like

SPACE = "{http://www.w3.org/2000/svg}"
MIB = 2**20


def model() -> MemoryPlan:
    """Like a language model: an embedding, four layers, keys, and work of a few launches."""
    always = Lifetime(0, 40)
    values = [Value("token_embd.weight packed", 8 * MIB, always, region="packed")]
    for k in range(4):
        values += [
            Value(f"blk.{k}.{name}.weight packed", nbytes, always, region="packed")
            for name, nbytes in (("ffn_up", 2 * MIB), ("attn_q", MIB))
        ]
        values.append(Value(f"k{k}", 3 * MIB, always, region="state"))
        values.append(Value(f"matmul_{k}.0", MIB, Lifetime(8 * k, 8 * k + 9)))
        values.append(Value(f"add_{k}.0", MIB // 2, Lifetime(8 * k + 4, 8 * k + 6)))
    values.append(Value("view", 64, Lifetime(1, 2), alias=Alias("matmul_0.0")))
    values.append(Value("tokens", 1024, always, region="io"))
    values.append(Value("file", 20 * MIB, Lifetime(0, 1), region="source"))
    return memory.plan(values, capacity=100 * 2**30)


def drawn(plan: MemoryPlan) -> ElementTree.Element:
    return ElementTree.fromstring(plan.to_svg().encode("utf-8"))


def rects(root: ElementTree.Element, css: str) -> dict[str, dict[str, float]]:
    """Of a kind, by the first word of what hovering says."""
    found = {}
    for rect in root.iter(f"{SPACE}rect"):
        title = rect.findtext(f"{SPACE}title")
        if css in rect.get("class", "").split() and title:
            sides = ("x", "y", "width", "height")
            found[title.split()[0]] = {side: float(rect.get(side, 0)) for side in sides}
    return found


def texts(root: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SPACE}text")]


def test_regions_are_drawn_to_scale_and_weights_by_layer() -> None:
    layers = rects(drawn(model()), "layer")
    assert [*layers][:9] == ["token_embd.weight", "blk.0", "blk.1", "blk.2", "blk.3"] + [
        f"k{k}" for k in range(4)
    ]
    a_mib = layers["token_embd.weight"]["width"] / 8
    for name, rect in layers.items():
        wanted = {"blk": 3, "k": 3}.get(kind_of(name))
        if wanted is not None:
            assert rect["width"] == pytest.approx(wanted * a_mib, rel=0.01), name
    ends = [rect["x"] + rect["width"] for rect in layers.values()]
    begins = [rect["x"] for rect in layers.values()]
    assert begins[1:9] == pytest.approx(ends[:8], abs=0.05), "side by side"


def test_the_work_region_is_under_a_lens_with_time_across_and_bytes_up() -> None:
    plan = model()
    root = drawn(plan)
    boxes = rects(root, "box")
    work = plan.regions["work"]
    slots = {str(s.id): s for s in plan.slots.values() if s.region == "work" and not s.alias_of}
    assert sorted(boxes) == sorted(slots)
    a_byte = boxes["matmul_0.0"]["height"] / MIB
    a_tick = boxes["matmul_0.0"]["width"] / 9
    for name, slot in slots.items():
        box = boxes[name]
        assert box["height"] == pytest.approx(a_byte * slot.capacity, rel=0.01)
        ticks = slot.lifetime.end - slot.lifetime.start
        assert box["width"] == pytest.approx(a_tick * ticks, abs=0.1)
        left = boxes["matmul_0.0"]["x"] + a_tick * slot.lifetime.start
        assert box["x"] == pytest.approx(left, abs=0.1)
        floor = max(one["y"] + one["height"] for one in boxes.values())
        low = floor - a_byte * (slot.offset - work.base)
        assert box["y"] + box["height"] == pytest.approx(low, abs=0.1)
    [lens] = root.iter(f"{SPACE}polygon")
    xs = [float(pair.split(",")[0]) for pair in (lens.get("points") or "").split()]
    of_work = rects(root, "layer")["work"]
    assert xs[:2] == pytest.approx([of_work["x"], of_work["x"] + of_work["width"]], abs=0.1)
    assert max(xs) - min(xs) > 8 * of_work["width"]


def test_title_and_legend_say_what_fills_the_memory() -> None:
    plan = model()
    shown = texts(drawn(plan))
    assert shown[0].endswith(" MiB of memory for 24 values")
    assert float(shown[0].split()[0]) == pytest.approx(plan.total_nbytes / MIB, rel=1e-3)
    assert "of 100 GiB allowed" in shown[1]
    for region, size in (("packed", "20 MiB"), ("state", "12 MiB"), ("source", "20 MiB")):
        entry = next(k for k, text in enumerate(shown) if text.startswith(f"{region}: "))
        assert shown[entry + 1] == size
    assert {"matmul (4)", "add (4)", "lower bound of work", "blk.0 … blk.3"} <= {*shown}


def test_hovering_tells_name_shape_bytes_lifetime_and_origin() -> None:
    details: dict[ValueId, str] = {
        "blk.1.attn_q.weight packed": "uint8 [64, 64], from blk.1.attn_q",
        "k2": "float16 [9]",
    }
    text = model()._replace(details=details).to_svg()
    titles = re.findall(r"<title>([^<]*)</title>", text)
    layer = next(title for title in titles if title.startswith("blk.1 "))
    assert layer.splitlines()[0] == "blk.1 (packed): 3 MiB (3,145,728 bytes) in 2 values"
    assert "blk.1.attn_q.weight packed: 1 MiB, uint8 [64, 64], from blk.1.attn_q" in layer
    keys = next(title for title in titles if title.startswith("k2 ")).splitlines()
    assert keys[:2] == ["k2 (state)", "float16 [9]"]
    assert keys[2].startswith("3 MiB (3,145,728 bytes) at ")
    assert keys[3] == "live [0, 40)"
    taken = memory.plan(
        [Value("a", 64, Lifetime(0, 3)), Value("b", 64, Lifetime(2, 5), takes_over=("a",))]
    )
    assert "took over a</title>" in taken.to_svg()


def test_a_plan_of_work_alone_is_all_lens_and_an_empty_one_is_a_title() -> None:
    root = drawn(memory.plan(graph_like(50, 1)))
    assert len(rects(root, "box")) == 50
    assert not rects(root, "layer")
    assert not list(root.iter(f"{SPACE}polygon"))
    assert texts(drawn(memory.plan([])))[0] == "0 bytes of memory for 0 values"
    state = drawn(memory.plan([Value("s", 64, Lifetime(0, 3), region="state")]))
    assert [*rects(state, "layer")] == ["s"]
    coming = [Value("s", 64, Lifetime(0, 3), region="state")]
    coming.append(Value("t", 64, Lifetime(3, 5), region="state"))
    assert sorted(rects(drawn(memory.plan(coming)), "box")) == ["s", "t"], "what shares bytes"


def test_the_bound_is_below_the_top_where_the_plan_is_not_tight() -> None:
    plan = memory.plan(graph_like(300, 3, 30, 0.3), effort=1)
    root = drawn(plan)
    [bound, key] = [one for one in root.iter(f"{SPACE}line") if one.get("class") == "bound"]
    frame = next(one for one in root.iter(f"{SPACE}rect") if one.get("class") == "frame")
    top, height = float(frame.get("y", 0)), float(frame.get("height", 0))
    share = (top + height - float(bound.get("y1", 0))) / height
    assert share == pytest.approx(plan.lower_bound / plan.peak_nbytes, abs=0.002)
    assert float(key.get("y1", 0)) > top + height, "the legend has one too"


@pytest.mark.parametrize("high", [0, 1, 7, 500, 2047, 4096, 3 * MIB, 195 * MIB, 7 * 2**30, 2**60])
def test_marks_are_at_round_amounts_of_one_unit(high: int) -> None:
    marks = byte_marks(high, 8)
    assert marks[0] == (0, "0")
    assert marks[-1][0] <= max(high, 0)
    assert len(marks) <= 9
    units = {"bytes": 1, "KiB": 2**10, "MiB": MIB, "GiB": 2**30, "TiB": 2**40}
    for nbytes, text in marks[1:]:
        number, unit = text.split()
        assert int(number) * units[unit] == nbytes
    if high >= 4:
        assert len(marks) >= 3
        step = marks[1][1].split()[0].rstrip("0")
        assert step in ("1", "2", "5")


def test_marks_of_time_are_round_and_within() -> None:
    assert tick_marks(211, 879, 8) == [300, 400, 500, 600, 700, 800]
    assert tick_marks(0, 1, 8) == [0, 1]
    assert tick_marks(0, 2**60, 8)[-1] <= 2**60
    assert round_step(0, 8) == 1


def test_names_are_grouped_by_layer_in_the_order_of_their_numbers() -> None:
    names = [f"blk.{k}.{part}" for k in (0, 10, 2) for part in ("up", "down")]
    plan = memory.plan([Value(name, 64, Lifetime(0, 1), region="packed") for name in names])
    [run] = runs_of(plan.slots.values())
    assert [group.name for group in run.groups] == ["blk.0", "blk.2", "blk.10"]
    assert run.label == "blk.0 … blk.10"
    assert layer_of("model.layers.3.self_attn.q_proj.weight") == "model.layers.3"
    assert layer_of("layer1.0.conv1.weight") == "layer1.0"
    assert layer_of("lm_head.weight") == "lm_head.weight"
    assert kind_of("permute_attention_18.scratch0") == "permute_attention.scratch"
    assert kind_of("17") == "values"


def test_names_from_strangers_cannot_break_the_drawing() -> None:
    names = ["<script>", "a&b", '"', "\x00\x1b", "\ud800", "\ufffe", "x" * 10_000, "]]>", "", "٣.٤"]
    for region in ("work", "packed"):
        values = [Value(name, 640, Lifetime(0, 9), region=region) for name in names]
        plan = memory.plan(values)._replace(details=dict.fromkeys(names, "<b>" + "y" * 10_000))
        root = drawn(plan)
        assert not list(root.iter("script"))
        assert len(plan.to_svg()) < 40_000


def test_text_stays_within_the_picture() -> None:
    for plan in (model(), memory.plan(graph_like(50, 1))):
        root = drawn(plan)
        _, _, width, height = (float(one) for one in (root.get("viewBox") or "").split())
        for text in root.iter(f"{SPACE}text"):
            long = len(text.text or "") * (10 if text.get("class") == "title" else 7)
            share = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.get("text-anchor", "start")]
            left = float(text.get("x", 0)) - share * long
            assert left >= -3, text.text
            assert left + long <= width + 3, text.text
            assert 0 < float(text.get("y", 0)) <= height


def test_style_rules_hold_in_the_picture_alone() -> None:
    for rule in re.findall(r"([^{}]+)\{", svg.STYLE):
        for selector in rule.split(","):
            assert selector.strip().startswith(".arenite-plan"), selector


def test_a_drawing_of_a_huge_plan_leaves_the_smallest_out_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(svg, "MAX_BOXES", 10)
    text = memory.plan(graph_like(50, 1)).to_svg()
    assert len(re.findall('class="box', text)) == 10
    assert "the largest 10 are drawn" in text
    always = Lifetime(0, 1)
    many = [Value(chr(97 + k) * 3, 64, always, region="packed") for k in range(26)]
    assert f"{26 - svg.MAX_RUNS + 1} others" in memory.plan(many).to_svg()
    deep = [Value(f"blk.{k}.w", 64, always, region="packed") for k in range(svg.MAX_LAYERS + 1)]
    assert memory.plan(deep).to_svg().count('class="layer"') == 1
