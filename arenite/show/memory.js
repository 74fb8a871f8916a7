"use strict";
// A memory plan: all memory as one bar, a map of a region over time, the schedule step by step, and
// the values by size.

const FIRST_ROWS = 50;
const MORE_ROWS = 500;
const LISTED = 8; // values of a list in the panel
const N_KINDS = 6; // that have a colour; the others share one
const ARENA = "arena";

/** All memory as one bar; a part of it that is clicked calls `choose(name of its region)`. */
function memoryBar(data, choose) {
  const bar = element("div", { class: "bar" });
  for (const region of data.regions) {
    if (!region.nbytes || !region.isResident) continue;
    const runs = region.runs.length ? region.runs : [{ label: region.name, nbytes: region.nbytes, count: 1 }];
    for (const [k, run] of runs.entries()) {
      const many = run.count > 1 ? ` in ${grouped(run.count)}` : "";
      bar.append(barRun(run.label, `${readableBytes(run.nbytes)}${many}`, run.nbytes / data.total, `--${region.name}`, {
        class: k ? "run" : "run first", click: () => choose(region.name),
        title: `${run.label} (${region.name}): ${exactBytes(run.nbytes)}${many}`,
      }));
    }
  }
  return bar;
}

class MemoryPanel {
  /** With `hasBar` all memory is on top of it. */
  constructor(host, data, hasBar = true) {
    this.data = data;
    this.values = data.values.map((value, row) => ({ ...value, row }));
    this.regions = new Map(data.regions.map((region) => [region.name, region]));
    this.owners = this.values.filter((value) => value.alias === null);
    this.query = "";
    this.kind = null;
    this.selected = null;
    this.nRows = FIRST_ROWS;
    this.build(host, hasBar);
    this.stops = this.allStops();
    this.stepper = new Stepper(this.steps, this.stops, data.peakTick, { step: () => this.drawTick() });
    this.steps.lastChild.append(element("button", {
      type: "button", title: "the tick with the most live bytes (p)", click: () => this.goToTick(data.peakTick),
    }, "fullest"));
    this.choose(this.firstView());
    this.drawTable();
    onColours(() => {
      this.map.draw();
      this.strip.draw();
    });
  }

  // What there is.

  /** Ticks to stop at: all of the schedule, and where something comes or goes. */
  allStops() {
    const found = new Set(this.data.ticks.keys());
    for (const { start, end } of this.owners) if (start < end) found.add(start).add(end - 1);
    return [...found].sort((a, b) => a - b);
  }

  firstView() {
    const sized = [...this.regions.values()].filter((region) => region.nbytes);
    const timed = sized.find((region) => region.name === "work") ?? sized.find((region) => region.isTimed);
    return (timed ?? sized[0] ?? this.data.regions[0])?.name ?? ARENA;
  }

  isInView(value, view = this.view) {
    return view === ARENA ? this.regions.get(value.region)?.inArena : value.region === view;
  }

  /** Where a view begins and ends, and the bytes that none can go below. */
  extent(view) {
    if (view !== ARENA) {
      const { base, nbytes, lowerBound } = this.regions.get(view);
      return { base, nbytes, lowerBound };
    }
    const regions = [...this.regions.values()].filter((region) => region.inArena);
    const nbytes = Math.max(0, ...regions.map((region) => region.base + region.nbytes));
    return { base: 0, nbytes, lowerBound: regions.reduce((sum, region) => sum + region.lowerBound, 0) };
  }

  ownerOf(value) {
    while (value.alias !== null) value = this.values[value.alias];
    return value;
  }

  liveAt(tick) {
    const live = this.owners.filter((v) => v.start <= tick && tick < v.end && this.isInView(v));
    return live.sort((a, b) => b.capacity - a.capacity);
  }

  /** The longest stretch of a view in which nothing lives. */
  largestHole(live) {
    const { base, nbytes } = this.extent(this.view);
    let [at, hole] = [base, 0];
    for (const value of [...live].sort((a, b) => a.offset - b.offset)) {
      hole = Math.max(hole, value.offset - at);
      at = Math.max(at, value.offset + value.capacity);
    }
    return Math.max(hole, base + nbytes - at);
  }

  /** Live bytes from each tick on at which they change; bytes that two values share count once. */
  liveOverTime() {
    const changes = new Map();
    const add = (tick, nbytes) => changes.set(tick, (changes.get(tick) ?? 0) + nbytes);
    for (const value of this.shown) {
      add(value.start, value.capacity);
      // What takes bytes over is born at the last tick of their owner.
      const heir = this.heirs.get(value.row);
      add(heir === undefined ? value.end : Math.min(value.end, this.values[heir].start), -value.capacity);
    }
    let live = 0;
    return [...changes.keys()].sort((a, b) => a - b).map((tick) => [tick, (live += changes.get(tick))]);
  }

  isMatch(value) {
    if (this.kind !== null && !(this.isInView(value) && this.kindOf(value) === this.kind)) return false;
    return !this.query || this.text(value).includes(this.query);
  }

  text(value) {
    value.text ??= `${value.name} ${value.what} ${value.origin}`.toLowerCase();
    return value.text;
  }

  kindOf(value) {
    if (this.view === ARENA) return value.region;
    return value.colour < N_KINDS ? value.kind : "others";
  }

  colourOf(value) {
    return this.view === ARENA || !this.isInView(value) ? `--${value.region}` : `--kind-${value.colour}`;
  }

  // The parts of the page, from the top down.

  build(host, hasBar) {
    const { data } = this;
    const part = (name, ...children) => element("section", { class: name }, ...children);
    this.tabs = element("nav", { class: "tabs", "aria-label": "regions" });
    this.mapTitle = element("h2");
    this.legend = element("div", { class: "legend" });
    this.search = element("input", {
      type: "search", placeholder: "search values  ( / )", "aria-label": "search values",
      spellcheck: "false", input: () => this.find(this.search.value),
    });
    this.found = element("span", { class: "soft", role: "status" });
    this.tick = element("div", { class: "tick", "aria-live": "polite" });
    this.value = element("div", { class: "value" });
    this.steps = element("div", { class: "stepper" });
    this.table = element("tbody");
    this.more = element("button", { type: "button", class: "more", click: () => this.showMore() });
    const zoom = (text, title, click) => element("button", { type: "button", title, click }, text);
    const mapHost = element("div", { class: "map" });
    const stripHost = element("div", { class: "strip" });
    const all = [element("h2", {}, `All memory: ${readableBytes(data.total)}`), memoryBar(data, (name) => this.choose(name))];
    host.append(
      part("overview", ...(hasBar ? all : []), this.tabs),
      part("over-time",
        element("div", { class: "map-head" },
          this.mapTitle,
          element("div", { class: "tools" },
            this.search, this.found,
            zoom("+", "zoom in (+, Ctrl and wheel)", () => this.map.zoomBy(2)),
            zoom("−", "zoom out (-)", () => this.map.zoomBy(0.5)),
            zoom("all", "show all (0)", () => this.map.zoomTo(this.map.whole)),
          ),
        ),
        element("div", { class: "columns" },
          element("div", { class: "drawing" }, mapHost, stripHost, this.steps, this.legend),
          element("aside", {}, this.tick, this.value),
        ),
      ),
      part("largest",
        element("h2", {}, "Largest values"),
        element("table", {},
          element("thead", {}, element("tr", {},
            ["name", "region", "size", "ticks", "dtype and shape", "from"].map((title, k) =>
              element("th", { class: ["", "", "number", "number wide", "wide", "wide"][k] }, title)))),
          this.table),
        this.more),
    );
    this.map = new BoxMap(mapHost, {
      tell: (box) => this.facts(this.values[box.value]),
      click: (box, tick) => this.click(box, tick),
      zoom: (window) => this.onZoom(window),
    });
    this.strip = new Strip(stripHost, {
      click: (tick) => this.stepper.goTo(tick),
      brush: (x0, x1) => this.map.zoomTo({ ...this.map.window, x0, x1 }),
    });
    this.heirs = new Map();
    for (const value of this.values) if (value.tookOver !== null) this.heirs.set(value.tookOver, value.row);
    this.drawTabs();
  }

  drawTabs() {
    const tab = (name, meaning, nbytes, variable) =>
      element("button", { type: "button", "data-view": name, click: () => this.choose(name) },
        variable ? swatch(variable) : null, element("b", {}, name), ` ${readableBytes(nbytes)}`,
        element("small", {}, meaning));
    for (const region of this.regions.values()) {
      if (!region.nbytes) continue;
      const where = region.device === "cpu" ? "" : ` (${region.device})`;
      this.tabs.append(tab(region.name, region.meaning + where, region.nbytes, `--${region.name}`));
    }
    if ([...this.regions.values()].filter((region) => region.inArena && region.nbytes).length > 1) {
      this.tabs.append(tab(ARENA, "one block of memory", this.extent(ARENA).nbytes, null));
    }
  }

  /** Another region in the map. */
  choose(view) {
    if (view !== ARENA && !this.regions.has(view)) return;
    this.view = view;
    this.kind = null;
    for (const tab of this.tabs.children) tab.setAttribute("aria-pressed", tab.dataset.view === view);
    this.shown = this.owners.filter((v) => this.isInView(v) && v.capacity && v.start < v.end);
    const { base, nbytes, lowerBound } = this.extent(view);
    const x0 = this.shown.reduce((least, v) => Math.min(least, v.start), Infinity);
    const x1 = this.shown.reduce((most, v) => Math.max(most, v.end), -Infinity);
    const whole = { x0: this.shown.length ? x0 : 0, x1: this.shown.length ? x1 : 1, y0: base, y1: base + Math.max(nbytes, 1) };
    const boxes = this.shown.map((v) => ({
      x0: v.start, x1: v.end, y0: v.offset, y1: v.offset + v.capacity,
      colour: this.colourOf(v), label: v.name, kind: v.kind, value: v.row,
    }));
    const name = view === ARENA ? "the arena" : view;
    const timed = this.shown.length ? "" : ": nothing lives here";
    this.mapTitle.textContent = `${name} over time: ${readableBytes(nbytes)}, ${counted(this.shown.length, "value")}${timed}`;
    this.drawLegend(lowerBound, nbytes);
    this.map.isFaded = (box) => !this.isMatch(this.values[box.value]);
    const points = this.liveOverTime();
    const peak = points.reduce((most, [, live]) => Math.max(most, live), 0);
    this.strip.show(points, whole.x0, whole.x1, peak);
    const marks = (low, high, most) => byteMarks(low, high, most, base);
    this.map.show(boxes, whole, marks, [{ y: base + lowerBound, colour: "--bound" }]);
    // The slider goes as far as the map, whose ticks are those at which something lives in it.
    this.stepper.setStops(this.stops.filter((tick) => whole.x0 <= tick && tick < whole.x1));
  }

  /** To a tick, in a view that has it. */
  goToTick(tick) {
    const { x0, x1 } = this.map.whole;
    if (tick < x0 || tick >= x1) {
      const views = [...this.tabs.children].map((tab) => tab.dataset.view).reverse();
      const lives = (v) => v.start <= tick && tick < v.end;
      const view = views.find((one) => this.owners.some((v) => lives(v) && this.isInView(v, one)));
      if (view) this.choose(view);
    }
    this.stepper.goTo(tick);
  }

  drawLegend(lowerBound, nbytes) {
    const kinds = new Map();
    for (const value of this.shown) {
      const kind = this.kindOf(value);
      const known = kinds.get(kind) ?? { colour: this.colourOf(value), count: 0, largest: 0, rank: value.colour };
      kinds.set(kind, { ...known, count: known.count + 1, largest: Math.max(known.largest, value.capacity) });
    }
    const ranked = [...kinds].sort((a, b) => a[1].rank - b[1].rank);
    this.legend.replaceChildren(
      ...ranked.map(([kind, { colour, count, largest }]) =>
        element("button", { type: "button", title: "show these alone", "data-kind": kind, click: () => this.chooseKind(kind) },
          swatch(colour), element("b", {}, kind),
          count > 1 ? ` ${grouped(count)}, up to ${readableBytes(largest)}` : ` ${readableBytes(largest)}`)),
      element("span", { class: "bound" }, `lower bound ${readableBytes(lowerBound)}`,
        nbytes > lowerBound ? ` (${(nbytes / lowerBound).toFixed(3)} ×)` : " (reached)"),
    );
  }

  chooseKind(kind) {
    this.kind = this.kind === kind ? null : kind;
    for (const one of this.legend.querySelectorAll("button")) {
      one.setAttribute("aria-pressed", one.dataset.kind === this.kind);
    }
    this.drawFound();
  }

  find(query) {
    this.query = query.trim().toLowerCase();
    this.nRows = FIRST_ROWS;
    this.drawFound();
  }

  drawFound() {
    const matches = this.values.filter((value) => this.isMatch(value));
    this.found.textContent = this.query || this.kind ? `${grouped(matches.length)} of ${grouped(this.values.length)}` : "";
    this.map.draw();
    this.drawTable();
  }

  /** To the next value that matches, the largest first. */
  next() {
    const matches = this.sorted();
    if (!matches.length) return;
    const at = matches.indexOf(this.selected);
    this.goTo(matches[(at + 1) % matches.length]);
  }

  /** Select a value, wherever it is. */
  goTo(value) {
    const owner = this.ownerOf(value);
    if (!this.isInView(owner)) this.choose(owner.region);
    this.select(value);
    const box = this.map.boxes.find((one) => one.value === owner.row);
    if (box) this.map.reveal(box);
    const tick = this.stepper.number;
    if (box && !(owner.start <= tick && tick < owner.end)) this.stepper.goTo(owner.start);
  }

  select(value) {
    this.selected = value;
    this.value.replaceChildren(...(value ? [element("h3", {}, "Selected"), this.facts(value, true)] : []));
    this.drawOutlines();
    for (const row of this.table.children) {
      row.classList.toggle("selected", Number(row.dataset.row) === value?.row);
    }
  }

  click(box, tick) {
    this.select(box ? this.values[box.value] : null);
    this.stepper.goTo(tick);
  }

  // What is told of a tick and of a value.

  /** All that is known of a value; with `hasLinks`, who writes and reads it. */
  facts(value, hasLinks = false) {
    const pairs = [];
    const add = (name, text) => text && pairs.push(element("dt", {}, name), element("dd", {}, text));
    add("region", value.region);
    add("what", value.what);
    add("size", exactBytes(value.nbytes));
    if (value.capacity !== value.nbytes) add("takes", exactBytes(value.capacity));
    add("offset", grouped(value.offset) + (this.regions.get(value.region)?.base ? " of the arena" : ""));
    const last = value.end - 1;
    add("lives", value.end <= value.start ? "never" : last === value.start ? `at tick ${grouped(last)}` : `ticks ${grouped(value.start)} to ${grouped(last)}`);
    add("from", value.origin);
    const ticks = [...this.data.ticks.entries()];
    const makers = ticks.filter(([, tick]) => tick.writes.includes(value.row));
    const readers = ticks.filter(([, tick]) => tick.reads.includes(value.row));
    add("node", this.kernels(makers, hasLinks));
    if (hasLinks) add("read by", this.kernels(readers, true));
    if (value.alias !== null) add("lies in", this.values[value.alias].name);
    if (value.tookOver !== null) add("took over", this.values[value.tookOver].name);
    return element("div", { class: "facts" }, element("strong", {}, value.name), element("dl", {}, pairs));
  }

  kernels(some, hasLinks) {
    if (!some.length) return null;
    const shown = some.slice(0, hasLinks ? LISTED : 1);
    const parts = shown.map(([tick, { name }]) =>
      hasLinks
        ? element("button", { type: "button", class: "link", click: () => this.goToTick(tick) }, `${name} (${grouped(tick)})`)
        : element("span", {}, name));
    if (some.length > shown.length) parts.push(` and ${grouped(some.length - shown.length)} more`);
    return element("span", { class: "kernels" }, parts);
  }

  /** Some values, the largest first, as buttons. */
  list(title, values, colour = null) {
    const nbytes = values.reduce((sum, value) => sum + value.nbytes, 0);
    const ordered = [...values].sort((a, b) => b.nbytes - a.nbytes);
    const items = ordered.slice(0, LISTED).map((value) =>
      element("li", {}, element("button", { type: "button", title: value.name, click: () => this.goTo(value) },
        swatch(this.colourOf(value)), element("span", { class: "name" }, value.name),
        element("span", { class: "amount" }, readableBytes(value.nbytes)))));
    if (values.length > LISTED) items.push(element("li", { class: "soft" }, `and ${grouped(values.length - LISTED)} more`));
    const head = element("h3", {}, title, element("small", {}, values.length ? ` ${grouped(values.length)}, ${readableBytes(nbytes)}` : " none"));
    if (colour) head.style.borderColor = `var(${colour})`;
    return element("div", { class: `list ${title.split(" ")[0]}` }, head, element("ul", {}, items));
  }

  drawTick() {
    const at = this.stepper.number;
    const step = this.data.ticks[at];
    const live = this.liveAt(at);
    const { nbytes } = this.extent(this.view);
    const used = this.used(live);
    const meter = element("div", { class: "meter" }, element("i"));
    meter.firstChild.style.width = `${nbytes ? (100 * used) / nbytes : 0}%`;
    const last = this.stops.at(-1) ?? 0;
    const rows = (some) => some.map((row) => this.values[row]);
    const born = this.values.filter((value) => value.start === at && value.start < value.end);
    const dying = this.values.filter((value) => value.end === at + 1 && value.start < value.end);
    this.tick.replaceChildren(
      element("h3", { class: "when" }, `Tick ${grouped(at)}`,
        element("small", {}, ` of ${grouped(last)}${step?.atLoad ? ", at load" : ""}${at === this.data.peakTick ? ", the fullest" : ""}`)),
      ...(step
        ? [element("p", { class: "kernel" }, step.name, step.origin ? element("small", {}, ` from ${step.origin}`) : null),
           this.list("reads", rows(step.reads), "--read"), this.list("writes", rows(step.writes), "--write")]
        : [this.list("comes", born, "--write"), this.list("goes after", dying, "--read")]),
      this.list(`live in ${this.view}`, live),
      meter,
      element("p", { class: "free" }, `free: ${readableBytes(nbytes - used)} of ${readableBytes(nbytes)}`,
        nbytes > used ? `, in one piece up to ${readableBytes(this.largestHole(live))}` : ""),
    );
    this.map.cursor = this.strip.cursor = at;
    this.keepInWindow(at);
    this.drawOutlines();
    this.strip.draw();
  }

  /** Bytes that some values have; those that two have count once. */
  used(values) {
    let [used, end] = [0, -Infinity];
    for (const value of [...values].sort((a, b) => a.offset - b.offset)) {
      used += Math.max(0, value.offset + value.capacity - Math.max(value.offset, end));
      end = Math.max(end, value.offset + value.capacity);
    }
    return used;
  }

  keepInWindow(tick) {
    const { x0, x1 } = this.map.window;
    if (tick >= x0 && tick + 1 <= x1) return;
    const half = (x1 - x0) / 2;
    this.map.zoomTo({ ...this.map.window, x0: tick + 0.5 - half, x1: tick + 0.5 + half });
  }

  onZoom(window) {
    if (!this.strip) return;
    this.strip.window = window;
    this.strip.draw();
  }

  drawOutlines() {
    const step = this.data.ticks[this.stepper.number];
    const { outlined } = this.map;
    outlined.clear();
    const outline = (row, colour) => outlined.set(this.ownerOf(this.values[row]).row, colour);
    for (const row of step?.reads ?? []) outline(row, "--read");
    for (const row of step?.writes ?? []) outline(row, "--write");
    if (this.selected) outline(this.selected.row, "--text");
    this.map.drawTop();
  }

  // The table.

  sorted() {
    const matches = this.values.filter((value) => this.isMatch(value));
    return matches.sort((a, b) => b.nbytes - a.nbytes || a.row - b.row);
  }

  drawTable() {
    const values = this.sorted();
    const row = (value) =>
      element("tr", { "data-row": value.row, tabindex: "0", click: () => this.goTo(value),
        keydown: (event) => event.key === "Enter" && this.goTo(value) },
        element("td", { class: "name" }, swatch(`--${value.region}`), value.name),
        element("td", {}, value.region),
        element("td", { class: "number" }, readableBytes(value.nbytes)),
        element("td", { class: "number wide" }, value.end > value.start ? `${grouped(value.start)} to ${grouped(value.end - 1)}` : "never"),
        element("td", { class: "wide" }, value.what),
        element("td", { class: "wide" }, value.origin));
    this.table.replaceChildren(...values.slice(0, this.nRows).map(row));
    const left = values.length - this.nRows;
    this.more.hidden = left <= 0;
    this.more.textContent = `show ${grouped(Math.min(left, MORE_ROWS))} more of ${counted(left, "smaller value")}`;
    this.select(this.selected);
  }

  showMore() {
    this.nRows += MORE_ROWS;
    this.drawTable();
  }

  /** What it does with a key that is pressed anywhere on the page. */
  key(event) {
    const isTyping = event.target === this.search;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      this.search.value = "";
      this.search.blur();
      this.kind = null;
      this.find("");
      this.select(null);
      this.drawLegend(this.extent(this.view).lowerBound, this.extent(this.view).nbytes);
      return;
    }
    if (isTyping) {
      if (event.key === "Enter") this.next();
      return;
    }
    if (event.key === " " && event.target instanceof HTMLButtonElement) return;
    const actions = {
      "/": () => this.search.focus(),
      "+": () => this.map.zoomBy(2),
      "=": () => this.map.zoomBy(2),
      "-": () => this.map.zoomBy(0.5),
      0: () => this.map.zoomTo(this.map.whole),
      p: () => this.goToTick(this.data.peakTick),
    };
    if (actions[event.key] || this.stepper.key(event)) {
      actions[event.key]?.();
      event.preventDefault();
    }
  }
}

MemoryPanel.KEYS = [
  "← → step, Shift for ten, Home and End, space plays, p the fullest tick; + − 0 zoom, ",
  "Ctrl and wheel at the pointer, Shift and wheel time alone, drag to move; / searches, Enter goes to ",
  "the next one, Esc clears.",
].join("");
