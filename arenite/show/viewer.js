"use strict";
// The page of a program: what fills memory and what takes time on top, and a panel for each way to
// look into it, built when it is chosen first.

class Viewer {
  constructor(main, data) {
    this.data = data;
    this.program = data.programs[0] ?? null;
    this.panels = new Map();
    this.glance = element("section", { class: "glance" });
    this.views = element("nav", { class: "views", role: "tablist", "aria-label": "views" });
    this.host = element("div", { class: "panels" });
    this.keys = element("footer", { class: "soft" });
    main.append(pageHeader(data.title, data.facts), this.chooser(), this.glance, this.views, this.host, this.keys);
    this.begin();
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /** Which of several programs is looked at. */
  chooser() {
    const { programs } = this.data;
    if (programs.length < 2) return "";
    return element("label", { class: "chooser" }, "program ", element("select", { change: (event) => {
      this.program = programs[event.target.selectedIndex];
      this.begin();
    } }, programs.map((one) => element("option", {}, one.name))));
  }

  begin() {
    const { program, data } = this;
    this.panels.clear();
    this.host.replaceChildren();
    this.times = new Map((data.trace?.kernels ?? []).map((one) => [one.name, one]));
    const go = (view, name) => this.goTo(view, name);
    const places = ["memory", "kernels", "waits", "timeline"].filter((view) => (view === "timeline" ? data.trace : program));
    const others = (own) => places.filter((one) => one !== own);
    this.rows = this.kernelRows();
    this.makers = new Map();
    if (program) {
      this.makers.set("memory", ["Memory", readableBytes(program.plan.total), MemoryPanel, (host) => new MemoryPanel(host, program.plan, false)]);
      this.makers.set("passes", ["Passes", grouped(program.passes.passes.length), PassesPanel, (host) => new PassesPanel(host, program.passes)]);
    }
    this.makers.set("kernels", ["Kernels", grouped(this.rows.length), KernelsPanel, (host) => new KernelsPanel(host, this.rows, {
      isMeasured: this.isMeasured, texts: data.texts, nameMark: data.nameMark, places: others("kernels"), go })]);
    if (program) {
      this.makers.set("waits", ["Waits", grouped(program.hazards.waits.length), HazardsPanel, (host) => new HazardsPanel(host, program.hazards, program.plan.values, { places: others("waits"), go })]);
    }
    if (data.trace) {
      this.makers.set("timeline", ["Timeline", readableMicros(Math.max(0, ...data.trace.bars.map((bar) => bar[3]))), TimelinePanel, (host) => new TimelinePanel(host, data.trace, { hasKernels: true, go })]);
    }
    this.views.replaceChildren(...[...this.makers].map(([view, [title, amount]], k) =>
      element("button", { type: "button", role: "tab", id: `tab-${view}`, "aria-controls": `panel-${view}`, title: `${title} (${k + 1})`, click: () => this.show(view) },
        element("b", {}, title), element("small", {}, amount))));
    this.drawGlance();
    this.show(program ? "memory" : "timeline");
  }

  /** What a trace calls a kernel of this program: those of segments have the segment before. */
  nameInTrace(name) {
    const segment = this.program?.name.split(",")[0];
    return segment && !this.times.has(name) ? `${segment} ${name}` : name;
  }

  get isMeasured() {
    return this.data.trace !== null;
  }

  kernelRows() {
    const kernels = this.program?.kernels ?? this.data.trace.kernels.map(({ name }) => ({ name, isBare: true }));
    const operations = kernels.reduce((sum, one) => sum + (one.atLoad ? 0 : one.operations ?? 0), 0) || 1;
    return kernels.map((kernel, place) => {
      const time = this.times.get(this.nameInTrace(kernel.name)) ?? null;
      // What one launch of the run had: sizes may have been smaller than they may be.
      const launched = (rate) => Math.round((rate * 1e9 * time.seconds) / Math.max(time.runs, 1));
      const origins = kernel.origins?.join(" ") ?? time?.origin ?? "";
      return {
        name: kernel.name, place, time,
        text: `${kernel.name} ${origins} ${kernel.border ?? ""}`.toLowerCase(),
        micros: time && time.seconds * 1e6,
        share: time ? time.share : this.isMeasured || kernel.atLoad ? 0 : kernel.operations / operations,
        nbytes: time?.gbytes ? launched(time.gbytes) : kernel.isBare ? null : kernel.reads + kernel.writes,
        operations: time?.gops ? launched(time.gops) : kernel.isBare ? null : kernel.operations,
        kernel: kernel.isBare ? null : kernel,
      };
    });
  }

  /** What fills memory, and what takes time, each as one bar. */
  drawGlance() {
    const { program } = this;
    const parts = [];
    if (program) {
      parts.push(element("h2", {}, `Memory: ${readableBytes(program.plan.total)}`),
        memoryBar(program.plan, (region) => this.show("memory").choose(region)));
    }
    const inRun = this.rows.filter((row) => row.share);
    const kinds = kindsByAmount(inRun.map((row) => [row.name, this.isMeasured ? row.micros : row.operations]));
    const total = kinds.reduce((sum, [, amount]) => sum + amount, 0);
    const shown = kinds.filter(([, amount], k) => k < COLOURED_KINDS && amount > total / 200);
    const rest = total - shown.reduce((sum, [, amount]) => sum + amount, 0);
    if (total) {
      const readable = this.isMeasured ? readableMicros : readableCount;
      const title = `${this.isMeasured ? "Time" : "Operations"}: ${readable(total)}`;
      const about = this.isMeasured ? " of work in one run, over all threads" : " in one run, with sizes at their largest; --profile measures time";
      const run = ([kind, amount], k) => barRun(kind, `${percent(amount / total)}, ${readable(amount)}`, amount / total, `--kind-${k}`, {
        class: k ? "run" : "run first", title: `${kind}: ${readable(amount)}, ${percent(amount / total)}`,
        click: () => this.show("kernels").find(kind),
      });
      const bar = element("div", { class: "bar times" }, shown.map(run));
      if (rest > total / 1e6) {
        bar.append(barRun(counted(kinds.length - shown.length, "other kind"), percent(rest / total), rest / total, `--kind-${COLOURED_KINDS}`, {
          class: "run", title: readable(rest), click: () => this.show("kernels").find("") }));
      }
      parts.push(element("h2", {}, title, element("small", {}, about)), bar);
    }
    this.glance.replaceChildren(...parts);
    this.glance.hidden = !parts.length;
  }

  /** A panel, made if it is not there yet. */
  show(view) {
    const [title, , kind, make] = this.makers.get(view);
    this.view = view;
    for (const tab of this.views.children) {
      const isChosen = tab.id === `tab-${view}`;
      tab.setAttribute("aria-selected", isChosen);
    }
    for (const host of this.host.children) host.hidden = host.id !== `panel-${view}`;
    if (!this.panels.has(view)) {
      const host = element("section", { class: `panel ${view}-panel`, id: `panel-${view}`, role: "tabpanel", "aria-labelledby": `tab-${view}` });
      this.host.append(host);
      this.panels.set(view, make(host));
    }
    this.keys.textContent = `Keys: ${[...this.makers.keys()].map((_, k) => k + 1).join(" ")} choose a view. ${title}: ${kind.KEYS}`;
    return this.panels.get(view);
  }

  /** A kernel or launch in another panel. */
  goTo(view, name) {
    const panel = this.show(view);
    if (view === "memory") {
      const tick = this.program.plan.ticks.findIndex((one) => one.name === name);
      if (tick >= 0) panel.goToTick(tick);
    } else if (view === "timeline") {
      panel.goTo(this.nameInTrace(name));
    } else if (this.program?.name) {
      panel.goTo(name.replace(`${this.program.name.split(",")[0]} `, ""));
    } else {
      panel.goTo(name);
    }
    this.views.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target instanceof HTMLInputElement && event.target.type === "search";
    const view = [...this.makers.keys()][Number(event.key) - 1];
    if (view && !isTyping) {
      this.show(view);
      event.preventDefault();
      return;
    }
    if (event.target instanceof HTMLSelectElement) return;
    if (event.key === " " && event.target instanceof HTMLButtonElement) return;
    this.panels.get(this.view).key(event);
  }
}

const PAGE = new Viewer(document.querySelector("main"), JSON.parse(document.getElementById("data").textContent));
