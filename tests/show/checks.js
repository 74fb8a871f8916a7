"use strict";
// What the scripts of assertions use; the result is JSON in the page.

const told = { n: 0, failures: [] };

/** Whether something is what it should be, compared as JSON. */
function check(what, is, should = true) {
  told.n += 1;
  if (JSON.stringify(is) !== JSON.stringify(should)) {
    told.failures.push(`${what}: ${JSON.stringify(is)}, not ${JSON.stringify(should)}`);
  }
}

const one = (selector) => document.querySelector(selector);
const all = (selector) => [...document.querySelectorAll(selector)];
const texts = (selector) => all(selector).map((found) => found.textContent);
const press = (key, more = {}) =>
  (document.activeElement ?? document.body).dispatchEvent(
    new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));

/** A pointer over a place of an element, in its own pixels. */
function point(target, type, left, top, more = {}) {
  const box = target.getBoundingClientRect();
  const kind = type === "wheel" ? WheelEvent : type.startsWith("pointer") ? PointerEvent : MouseEvent;
  target.dispatchEvent(new kind(type, {
    clientX: box.left + left, clientY: box.top + top, bubbles: true, cancelable: true, ...more }));
}

/** The middle of a value's box in the map, in pixels. */
function middleOf(name) {
  const { x, y } = PAGE.map.scales();
  const box = PAGE.map.boxes.find((found) => PAGE.values[found.value].name === name);
  return [x.at((box.x0 + box.x1) / 2), y.at((box.y0 + box.y1) / 2)];
}

function type(text) {
  const search = one("input[type=search]");
  search.value = text;
  search.dispatchEvent(new Event("input"));
}

function run(body) {
  setTimeout(() => {
    try {
      body();
    } catch (error) {
      told.failures.push(`${error}\n${error.stack}`);
    }
    const made = document.createElement("pre");
    made.id = "checks";
    made.textContent = JSON.stringify(told);
    document.body.append(made);
  }, 200);
}
