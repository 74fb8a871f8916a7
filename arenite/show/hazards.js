"use strict";
// Who waits for whom: launches in order along a line, an arc for each wait, and for the selected
// launch all it waits for and all that wait for it, with the bytes that are the reason.

const ARC_ROOM = 1.4; // heights of a launch that arcs have
const AT_FIRST = 24; // pixels of a launch
const KIND_NAMES = { RAW: "reads what it wrote", WAR: "writes over what it read", WAW: "writes over what it wrote", UNDECLARED: "undeclared bytes" };
const LISTED_WAITS = 40;

class HazardsPanel {
  /** `values` are rows of the plan; `go(panel, name)` shows a launch elsewhere. */
  constructor(host, data, values, { places, go }) {
    Object.assign(this, { data, values, places, go });
    this.waits = data.waits.map(([before, after, hasFlag, isReuse, n, conflicts]) => ({ before, after, hasFlag, isReuse, n, conflicts }));
    this.into = data.launches.map(() => []);
    this.outOf = data.launches.map(() => []);
    for (const wait of this.waits) {
      this.into[wait.after].push(wait);
      this.outOf[wait.before].push(wait);
    }
    this.only = null; // waits of one sort: for data, or for bytes that are used again
    this.longest = this.waits.reduce((most, { before, after }) => Math.max(most, after - before), 1);
    this.build(host);
    const first = this.into.reduce((best, some, k) => (some.length + this.outOf[k].length > this.into[best].length + this.outOf[best].length ? k : best), 0);
    this.stepper = new Stepper(this.steps, [...data.launches.keys()], first, { step: (number) => this.show(number) });
    this.showAll();
    const half = this.map.host.clientWidth / AT_FIRST / 2;
    this.map.zoomTo({ ...this.map.whole, x0: first - half, x1: first + half });
    this.stepper.go(first);
    onColours(() => {
      this.map.draw();
      this.strip.draw();
    });
  }

  /** The most launches one of which waits for the next: no number of workers makes a run shorter. */
  chain() {
    let longest = 0;
    for (const [first, stop] of this.data.blocks) {
      const depth = new Array(stop - first).fill(longest + 1);
      for (let k = first; k < stop; k += 1) {
        for (const { before } of this.into[k]) depth[k - first] = Math.max(depth[k - first], depth[before - first] + 1);
        longest = Math.max(longest, depth[k - first]);
      }
    }
    return longest;
  }

  /** How many waits go over each launch: [launch, count] where that changes. */
  open() {
    const changes = new Map([[0, 0]]);
    const add = (at, by) => changes.set(at, (changes.get(at) ?? 0) + by);
    for (const { before, after } of this.waits) {
      add(before, 1);
      add(after + 1, -1);
    }
    let n = 0;
    return [...changes.keys()].sort((a, b) => a - b).map((at) => [at, (n += changes.get(at))]);
  }

  build(host) {
    const reuse = this.waits.filter((wait) => wait.isReuse).length;
    const flags = this.waits.filter((wait) => wait.hasFlag).length;
    const mapHost = element("div", { class: "map arcs" });
    const stripHost = element("div", { class: "strip" });
    this.steps = element("div", { class: "stepper" });
    this.focus = element("div", { class: "focus", "aria-live": "polite" });
    const choose = (text, variable, isReuse) => element("button", { type: "button", "aria-pressed": "false", title: "show these alone", click: (event) => {
      this.only = this.only === isReuse ? null : isReuse;
      for (const one of this.legend.querySelectorAll("button")) one.setAttribute("aria-pressed", one === event.currentTarget && this.only !== null);
      this.map.draw();
    } }, swatch(variable), text);
    this.legend = element("div", { class: "legend" },
      choose(`${grouped(this.waits.length - reuse)} hand data on`, "--read", false),
      choose(`${grouped(reuse)} only use bytes again`, "--write", true),
      element("span", { class: "bound-less" }, swatch("--kind-0"), "shared by all workers"),
      element("span", { class: "bound-less" }, swatch("--kind-6"), "run by one"));
    host.append(
      element("h2", {}, `${counted(this.data.launches.length, "launch", "launches")}, ${counted(this.waits.length, "wait")}`,
        element("small", {}, `  ${grouped(flags)} kept by a flag or a barrier, the others by the order of one worker; the longest chain is ${grouped(this.chain())} launches`)),
      mapHost, stripHost, this.steps, this.legend, this.focus);
    this.map = new BoxMap(mapHost, {
      tell: (box) => factList(box.label, [
        ["launch", grouped(box.value)], ["waits for", grouped(this.into[box.value].length)], ["waited for by", grouped(this.outOf[box.value].length)]]),
      click: (box, at) => this.stepper.goTo(box ? box.value : at),
      paint: (context, colour, scales) => this.paintAll(context, colour, scales),
      paintTop: (context, colour, scales) => this.paintSelected(context, colour, scales),
      zoom: (window) => {
        if (!this.strip) return;
        this.strip.window = window;
        this.strip.draw();
      },
    }, { label: "launches and their waits", axes: "x", least: [8, Infinity] });
    this.strip = new Strip(stripHost, {
      click: (at) => this.stepper.goTo(at),
      brush: (x0, x1) => this.map.zoomTo({ ...this.map.window, x0, x1 }),
    }, { name: "open", about: "waits that are open at each launch", text: (n) => counted(n, "wait") });
  }

  showAll() {
    const { launches, shared } = this.data;
    const boxes = launches.map((name, k) => ({
      x0: k, x1: k + 1, y0: 0, y1: 1, label: name, kind: kernelKind(name), value: k, colour: shared[k] ? "--kind-0" : "--kind-6" }));
    const whole = { x0: 0, x1: Math.max(launches.length, 1), y0: 0, y1: 1 + ARC_ROOM };
    const open = this.open();
    this.strip.show(open, 0, whole.x1, Math.max(...open.map(([, n]) => n), 1));
    this.map.show(boxes, whole, () => []);
  }

  paintArcs(context, colour, { x, y }, waits, width, alpha) {
    const base = y.at(1);
    const room = base - y.last - 4;
    // The longest of all has all the room; a longer arc is never below a shorter one.
    const high = (launches) => room * Math.sqrt(launches / this.longest);
    context.lineWidth = width;
    context.globalAlpha = alpha;
    for (const { before, after, isReuse } of waits) {
      const [left, right] = [x.at(before + 0.5), x.at(after + 0.5)];
      if (right < x.first || left > x.last) continue;
      context.strokeStyle = colour(isReuse ? "--write" : "--read");
      context.beginPath();
      context.ellipse((left + right) / 2, base, (right - left) / 2, high(after - before), 0, Math.PI, 2 * Math.PI);
      context.stroke();
    }
    context.globalAlpha = 1;
  }

  paintAll(context, colour, scales) {
    const { x, y } = scales;
    context.strokeStyle = colour("--area");
    context.lineWidth = 1;
    context.setLineDash([3, 4]);
    for (const [first] of this.data.blocks.slice(1)) {
      context.beginPath();
      context.moveTo(x.at(first), y.last);
      context.lineTo(x.at(first), y.at(1));
      context.stroke();
    }
    context.setLineDash([]);
    this.paintArcs(context, colour, scales, this.waits.filter((wait) => this.only === null || wait.isReuse === this.only), 1.2, 0.7);
  }

  paintSelected(context, colour, scales) {
    if (this.number === undefined) return;
    // What is not asked about steps back.
    const { x, y } = scales;
    context.fillStyle = colour("--shade");
    context.globalAlpha = 0.7;
    context.fillRect(x.first, y.last, x.last - x.first, y.at(1) - y.last);
    this.paintArcs(context, colour, scales, [...this.into[this.number], ...this.outOf[this.number]], 2.4, 1);
  }

  show(number) {
    this.number = number;
    const { map } = this;
    map.cursor = this.strip.cursor = number;
    this.strip.draw();
    map.outlined.clear();
    for (const { before } of this.into[number] ?? []) map.outlined.set(before, "--text");
    for (const { after } of this.outOf[number] ?? []) map.outlined.set(after, "--text");
    const { x0, x1 } = map.window;
    if (number < x0 || number + 1 > x1) {
      const half = (x1 - x0) / 2;
      map.zoomTo({ ...map.window, x0: number + 0.5 - half, x1: number + 0.5 + half });
    } else {
      map.drawTop();
    }
    this.drawFocus();
  }

  drawFocus() {
    const { number } = this;
    const name = this.data.launches[number];
    if (name === undefined) return;
    const isFirst = this.data.blocks.some(([first]) => first === number && first > 0);
    const shared = this.data.shared[number] ? "all workers share it" : "one worker runs it";
    this.focus.replaceChildren(
      this.side("waits for", this.into[number], (wait) => wait.before),
      element("div", { class: "middle" },
        element("h3", {}, `Launch ${grouped(number)} of ${grouped(this.data.launches.length)}`),
        element("strong", {}, name),
        element("p", { class: "soft" }, shared, isFirst ? "; a branch or a loop begins or ends before it, where everything is waited for" : ""),
        element("div", { class: "places" }, this.places.map((place) =>
          element("button", { type: "button", click: () => this.go(place, name) }, `in ${place}`)))),
      this.side("waited for by", this.outOf[number], (wait) => wait.after));
  }

  side(title, waits, other) {
    const items = waits.slice(0, LISTED_WAITS).map((wait) => element("li", { class: wait.isReuse ? "reuse" : "data" },
      element("button", { type: "button", class: "link", click: () => this.stepper.goTo(other(wait)) },
        this.data.launches[other(wait)], element("small", {}, ` launch ${grouped(other(wait))}`)),
      wait.conflicts.map((conflict) => this.conflict(conflict)),
      wait.n > wait.conflicts.length ? element("p", { class: "soft" }, `and ${counted(wait.n - wait.conflicts.length, "more range")}`) : null));
    if (waits.length > LISTED_WAITS) items.push(element("li", { class: "soft" }, `and ${counted(waits.length - LISTED_WAITS, "more launch", "more launches")}`));
    return element("div", { class: "side" }, element("h3", {}, title, element("small", {}, ` ${waits.length ? grouped(waits.length) : "nobody"}`)), element("ul", {}, items));
  }

  conflict([kind, before, after, storage, start, end]) {
    const name = (row) => this.values[row]?.name ?? "?";
    const whose = before === after ? name(before) : `${name(after)} lies where ${name(before)} was`;
    return element("p", { class: "conflict" }, element("b", {}, whose), element("small", {},
      ` ${KIND_NAMES[kind]}: ${readableBytes(end - start)}, bytes ${grouped(start)} to ${grouped(end)} ${storage ? "of it" : "of the arena"}`));
  }

  /** To a launch by name. */
  goTo(name) {
    const number = this.data.launches.indexOf(name);
    if (number >= 0) this.stepper.goTo(number);
  }

  key(event) {
    const actions = {
      "+": () => this.map.zoomBy(2),
      "=": () => this.map.zoomBy(2),
      "-": () => this.map.zoomBy(0.5),
      0: () => this.map.zoomTo(this.map.whole),
    };
    if (actions[event.key] || this.stepper.key(event)) {
      actions[event.key]?.();
      event.preventDefault();
    }
  }
}

HazardsPanel.KEYS = "← → the next launch, Shift for ten, Home and End, space plays; + − 0 zoom, Ctrl and wheel at the pointer, drag to move.";
