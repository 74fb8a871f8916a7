const canvas = all(".map canvas").at(-1);

// All of memory, and the region that is in the map.
check("title", one("h1").textContent, "a network");
check("total", one(".overview h2").textContent.includes(EXPECTED.total));
check("tabs", texts(".tabs b"), EXPECTED.regions);
check("pressed", texts(".tabs [aria-pressed=true] b"), ["work"]);
check("boxes", PAGE.map.boxes.length, EXPECTED.n_boxes);

// It begins where memory is fullest.
check("first tick", PAGE.stepper.number, EXPECTED.peak_tick);
const live = () => PAGE.liveAt(PAGE.stepper.number).map((value) => value.name).sort();
for (const [tick, names] of Object.entries(EXPECTED.live)) {
  PAGE.goToTick(Number(tick));
  check(`live at ${tick}`, live(), names);
  check(`used at ${tick}`, PAGE.used(PAGE.liveAt(Number(tick))), EXPECTED.used[tick]);
}

// Keys, buttons and the slider step.
press("Home");
check("Home", PAGE.stepper.number, EXPECTED.first);
check("kernel", one(".kernel").firstChild.textContent, EXPECTED.ticks[EXPECTED.first].name);
press("ArrowRight");
const step = EXPECTED.ticks[EXPECTED.first + 1];
check("right", PAGE.stepper.number, EXPECTED.first + 1);
check("reads", texts(".list.reads .name").sort(), step.reads);
check("writes", texts(".list.writes .name").sort(), step.writes);
press("ArrowLeft");
check("left", PAGE.stepper.number, EXPECTED.first);
press("ArrowRight", { shiftKey: true });
check("ten", PAGE.stepper.number, Math.min(EXPECTED.first + 10, EXPECTED.last));
press("End");
check("End", PAGE.stepper.number, EXPECTED.last);
all(".buttons button").find((button) => button.textContent === "‹").click();
check("button", PAGE.stepper.number, EXPECTED.last - 1);
const slider = one("input[type=range]");
slider.value = 2;
slider.dispatchEvent(new Event("input"));
check("slider", PAGE.stepper.number, EXPECTED.first + 2);
press("p");
check("fullest", PAGE.stepper.number, EXPECTED.peak_tick);
press(" ");
check("plays", PAGE.stepper.timer !== null);
press(" ");
check("pauses", PAGE.stepper.timer, null);

// Hovering tells of a value, and clicking selects it.
const [left, top_] = middleOf(EXPECTED.value.name);
point(canvas, "pointermove", left, top_);
check("hover is seen", one(".hover").hidden, false);
const hover = one(".hover").textContent;
for (const part of EXPECTED.value.told) check(`hover tells ${part}`, hover.includes(part));
point(canvas, "pointerdown", left, top_);
point(canvas, "pointerup", left, top_);
check("selected", one(".value strong").textContent, EXPECTED.value.name);
point(canvas, "pointerleave", 0, 0);
check("hover is gone", one(".hover").hidden);

// Search.
press("/");
check("focus", document.activeElement.type, "search");
type(EXPECTED.query.toUpperCase());
check("found", one("[role=status]").textContent.split(" ")[0], String(EXPECTED.found.length));
check("table", texts("tbody .name").sort(), EXPECTED.found);
check("faded", PAGE.map.boxes.filter((box) => !PAGE.map.isFaded(box)).map((box) => box.label).sort(), EXPECTED.found_boxes);
press("Enter");
check("next", EXPECTED.found.includes(one(".value strong").textContent));
press("Escape");
check("cleared", [one("[role=status]").textContent, all(".value *").length], ["", 0]);
check("largest", texts("tbody tr:first-child .name")[0], EXPECTED.largest);

// Zoom: at the pointer, by keys, by the strip; and back.
const before = { ...PAGE.map.window };
const at = PAGE.map.scales().x.number(left);
point(canvas, "wheel", left, top_, { deltaY: -200, ctrlKey: true });
check("wheel zooms", PAGE.map.window.x1 - PAGE.map.window.x0 < before.x1 - before.x0);
check("at the pointer", Math.abs(PAGE.map.scales().x.number(left) - at) < 1e-6);
press("0");
check("all", PAGE.map.window, before);
point(canvas, "wheel", left, top_, { deltaY: -200 });
check("a plain wheel scrolls", PAGE.map.window, before);
press("+");
check("plus", PAGE.map.window.y1 - PAGE.map.window.y0, (before.y1 - before.y0) / 2);
// What is selected comes into sight.
const far = PAGE.map.boxes.find((box) => box.x0 >= PAGE.map.window.x1 || box.x1 <= PAGE.map.window.x0);
PAGE.goTo(PAGE.values[far.value]);
check("revealed", far.x0 < PAGE.map.window.x1 && far.x1 > PAGE.map.window.x0);
press("0");
press("+");
press("End");
check("the cursor stays in sight", PAGE.map.window.x1 >= EXPECTED.last + 1);
press("0");

// Other regions.
all(".tabs button").find((button) => button.dataset.view === "io").click();
check("inputs and outputs", PAGE.map.boxes.map((box) => box.label).sort(), EXPECTED.io);
check("no text is cut off at the side", document.documentElement.scrollWidth <= innerWidth);
