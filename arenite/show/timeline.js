"use strict";
// A run over time: a lane for each worker, a bar for each kernel.

const COLOURED_KINDS = 6;

/** Round times within [low, high] µs, with their texts. */
function timeMarks(low, high, most) {
  // Marks are in nanoseconds, so that they are whole numbers however near one looks.
  return tickMarks(low * 1000, high * 1000, most).map(([at]) => [at / 1000, at ? readableMicros(at / 1000) : "0"]);
}

/** Kinds of kernels by what they take, the most first: [kind, amount]. */
function kindsByAmount(pairs) {
  const found = new Map();
  for (const [name, amount] of pairs) found.set(kernelKind(name), (found.get(kernelKind(name)) ?? 0) + amount);
  return [...found].sort((a, b) => b[1] - a[1]);
}

class TimelinePanel {
  constructor(host, trace, { hasKernels, go }) {
    Object.assign(this, { trace, hasKernels, go });
    this.bars = trace.bars.map(([lane, name, start, end, busy, tiles], place) => ({
      lane, name: trace.names[name], start, end, busy, tiles, place }));
    this.inOrder = [...this.bars].sort((a, b) => a.start - b.start || a.lane - b.lane);
    this.wall = Math.max(0, ...this.bars.map((bar) => bar.end));
    this.busy = this.bars.reduce((sum, bar) => sum + bar.busy, 0);
    this.kinds = kindsByAmount(this.bars.map((bar) => [bar.name, bar.busy]));
    this.colours = new Map(this.kinds.map(([kind], k) => [kind, `--kind-${Math.min(k, COLOURED_KINDS)}`]));
    this.kind = null;
    this.selected = null;
    this.build(host);
    this.showAll();
    onColours(() => {
      this.map.draw();
      this.strip.draw();
    });
  }

  build(host) {
    const { trace } = this;
    const lanes = Math.max(trace.lanes.length, 1);
    const mapHost = element("div", { class: "map lanes" });
    mapHost.style.height = `${Math.min(lanes * 64 + 30, 640)}px`;
    const stripHost = element("div", { class: "strip" });
    this.legend = element("div", { class: "legend" });
    this.detail = element("div", { class: "value timeline-detail", "aria-live": "polite" });
    const zoom = (text, title, click) => element("button", { type: "button", title, click }, text);
    host.append(
      element("div", { class: "map-head" },
        element("h2", {}, `A run: ${readableMicros(this.wall)} on ${counted(lanes, "thread")}`,
          element("small", {}, `  busy ${percent(this.wall ? this.busy / (this.wall * lanes) : 0)} of the time; ${counted(this.bars.length, "bar")}`,
            trace.leftOut ? `, and ${counted(trace.leftOut, "shorter one")} left out` : "", trace.about ? `; ${trace.about}` : "")),
        element("div", { class: "tools" },
          zoom("+", "zoom in (+, Ctrl and wheel)", () => this.map.zoomBy(2)),
          zoom("−", "zoom out (-)", () => this.map.zoomBy(0.5)),
          zoom("‹", "earlier (←)", () => this.map.pan(-0.25)),
          zoom("›", "later (→)", () => this.map.pan(0.25)),
          zoom("all", "show all (0)", () => this.map.zoomTo(this.map.whole)))),
      mapHost, stripHost, this.legend, this.detail);
    this.map = new BoxMap(mapHost, {
      tell: (box) => this.facts(this.bars[box.value]),
      click: (box) => this.select(box ? this.bars[box.value] : null),
      zoom: (window) => {
        if (!this.strip) return;
        this.strip.window = window;
        this.strip.draw();
      },
    }, { label: "kernels over time, a lane for each thread", axes: "x", least: [0.05, Infinity], xMarks: timeMarks });
    this.strip = new Strip(stripHost, {
      click: (at) => this.select(this.inOrder.findLast((bar) => bar.start <= at) ?? null),
      brush: (x0, x1) => this.map.zoomTo({ ...this.map.window, x0, x1 }),
    }, { name: "busy", about: "threads at work over time", text: (n) => counted(n, "thread") });
    this.drawLegend();
  }

  showAll() {
    const { lanes } = this.trace;
    const boxes = this.bars.map((bar) => ({
      x0: bar.start, x1: bar.end, y0: lanes.length - 1 - bar.lane + 0.06, y1: lanes.length - bar.lane - 0.06,
      label: bar.name, kind: kernelKind(bar.name), value: bar.place, colour: this.colours.get(kernelKind(bar.name)) }));
    const whole = { x0: 0, x1: Math.max(this.wall, 0.1), y0: 0, y1: Math.max(lanes.length, 1) };
    this.map.isFaded = (box) => this.kind !== null && box.kind !== this.kind;
    this.map.show(boxes, whole, () => lanes.map((name, k) => [lanes.length - k - 0.5, name]));
    const changes = this.bars.flatMap((bar) => [[bar.start, 1], [bar.end, -1]]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    let n = 0;
    this.strip.show(changes.map(([at, by]) => [at, (n += by)]), 0, whole.x1, Math.max(lanes.length, 1));
  }

  drawLegend() {
    const button = ([kind, micros]) => element("button", { type: "button", title: "show these alone", "data-kind": kind, click: () => this.choose(kind) },
      swatch(this.colours.get(kind)), element("b", {}, kind), ` ${readableMicros(micros)}, ${percent(this.busy ? micros / this.busy : 0)}`);
    const others = this.kinds.slice(COLOURED_KINDS);
    const rest = others.reduce((sum, [, micros]) => sum + micros, 0);
    this.legend.replaceChildren(...this.kinds.slice(0, COLOURED_KINDS).map(button),
      ...(others.length ? [element("span", { class: "bound-less" }, swatch(`--kind-${COLOURED_KINDS}`), `${counted(others.length, "other kind")} ${readableMicros(rest)}, ${percent(this.busy ? rest / this.busy : 0)}`)] : []));
  }

  choose(kind) {
    this.kind = this.kind === kind ? null : kind;
    for (const one of this.legend.querySelectorAll("button")) one.setAttribute("aria-pressed", one.dataset.kind === this.kind);
    this.map.draw();
  }

  facts(bar) {
    return factList(bar.name, [
      ["thread", this.trace.lanes[bar.lane]],
      ["from", `${readableMicros(bar.start)} on`],
      ["takes", readableMicros(bar.end - bar.start)],
      ["busy", bar.tiles > 1 ? `${readableMicros(bar.busy)} in ${counted(bar.tiles, "tile")}` : ""],
      ["share", `${percent(this.busy ? bar.busy / this.busy : 0)} of all busy time`],
    ]);
  }

  select(bar) {
    this.selected = bar;
    this.map.outlined.clear();
    if (bar) this.map.outlined.set(bar.place, "--text");
    this.detail.replaceChildren(...(bar ? [this.facts(bar)] : []),
      ...(bar && this.hasKernels ? [element("div", { class: "places" }, element("button", { type: "button", click: () => this.go("kernels", bar.name) }, "in kernels"))] : []));
    const box = bar && this.map.boxes.find((one) => one.value === bar.place);
    if (box) this.map.reveal(box);
    this.map.drawTop();
  }

  /** To the longest bar of a kernel. */
  goTo(name) {
    const found = this.bars.filter((bar) => bar.name === name).sort((a, b) => b.busy - a.busy)[0];
    if (found) this.select(found);
  }

  key(event) {
    const next = (by) => {
      const at = this.inOrder.indexOf(this.selected) + by;
      if (this.inOrder.length) this.select(this.inOrder[Math.min(Math.max(at, 0), this.inOrder.length - 1)]);
    };
    const actions = {
      "+": () => this.map.zoomBy(2),
      "=": () => this.map.zoomBy(2),
      "-": () => this.map.zoomBy(0.5),
      0: () => this.map.zoomTo(this.map.whole),
      ArrowLeft: () => this.map.pan(event.shiftKey ? -1 : -0.25),
      ArrowRight: () => this.map.pan(event.shiftKey ? 1 : 0.25),
      Home: () => this.map.zoomTo({ ...this.map.window, x0: 0, x1: this.map.window.x1 - this.map.window.x0 }),
      End: () => this.map.zoomTo({ ...this.map.window, x0: this.wall - (this.map.window.x1 - this.map.window.x0), x1: this.wall }),
      ArrowDown: () => next(1),
      ArrowUp: () => next(-1),
      Escape: () => this.select(null),
    };
    if (!actions[event.key]) return;
    actions[event.key]();
    event.preventDefault();
  }
}

TimelinePanel.KEYS = "← → earlier and later, Shift for a whole window; ↑ ↓ the next bar; + − 0 zoom, Ctrl and wheel at the pointer, drag to move, Esc clears.";
