"use strict";
// What passes changed: each with nodes and kernels after it, and the lines of the graph that differ.

class PassesPanel {
  constructor(host, data) {
    this.data = data;
    this.passes = data.passes;
    this.list = element("div", { class: "rows", role: "listbox", "aria-label": "passes", tabindex: "0" });
    this.detail = element("div", { class: "detail" });
    host.append(
      element("h2", {}, counted(this.passes.length, "pass", "passes"), element("small", {},
        `  ${grouped(this.passes.filter((one) => one.lines).length)} of them changed the graph`)),
      element("div", { class: "halves" }, this.list, this.detail));
    this.build();
    const most = this.passes.reduce((best, one, k) => (one.lines > (this.passes[best]?.lines ?? 0) ? k : best), 0);
    this.select(most);
  }

  build() {
    let [nodes, kernels] = [this.data.nodes, this.data.kernels];
    const largest = Math.max(nodes, ...this.passes.map((one) => one.nodes), 1);
    const row = (name, about, count, nKernels, attributes) => {
      const meter = element("div", { class: "meter" }, element("i"));
      meter.firstChild.style.width = `${(100 * count) / largest}%`;
      return element("button", { type: "button", tabindex: "-1", ...attributes },
        element("b", {}, name), element("span", { class: "soft" }, about),
        ...(count ? [element("span", { class: "number" }, `${counted(count, "node")}${nKernels === null ? "" : `, ${counted(nKernels, "kernel")}`}`), meter] : []));
    };
    this.list.append(row("as it came", "", nodes, kernels, { disabled: true }));
    for (const [k, one] of this.passes.entries()) {
      kernels = one.lines ? one.kernels : kernels;
      const about = one.lines ? `${one.nodes - nodes >= 0 ? "+" : "−"}${grouped(Math.abs(one.nodes - nodes))} nodes, ${readableMicros(one.seconds * 1e6)}` : "no change";
      this.list.append(row(one.name, about, one.lines && one.nodes, kernels, {
        role: "option", class: one.lines ? "" : "still", "data-row": k, click: () => this.select(k) }));
      nodes = one.nodes;
    }
  }

  select(number) {
    if (!this.passes.length) return;
    this.selected = Math.min(Math.max(number, 0), this.passes.length - 1);
    for (const row of this.list.children) row.setAttribute("aria-selected", Number(row.dataset.row) === this.selected);
    this.list.children[this.selected + 1].scrollIntoView({ block: "nearest" });
    const one = this.passes[this.selected];
    const counts = element("div", { class: "counts" }, one.ops.map(([op, before, after]) =>
      element("span", { class: after > before ? "came" : "went" }, element("b", {}, op), ` ${grouped(before)} → ${grouped(after)}`)));
    const left = one.lines - one.shown;
    this.detail.replaceChildren(
      element("h3", {}, one.name, element("small", {}, one.lines ? ` ${counted(one.lines, "line")} came or went` : "")),
      ...(one.lines ? [counts, this.difference(one.hunks)] : [element("p", { class: "soft" }, "This pass found nothing to do and left the graph as it was.")]),
      ...(left > 0 ? [element("p", { class: "soft more-lines" }, `and ${counted(left, "more line")} that came or went`)] : []));
  }

  difference(hunks) {
    const made = element("pre", { class: "difference", tabindex: "0", "aria-label": "what changed" });
    for (const [before, after, lines] of hunks) {
      made.append(element("span", { class: "at" }, `line ${grouped(before)} → ${grouped(after)}`));
      for (const [sign, text] of lines) {
        made.append(element("span", { class: sign === "+" ? "came" : sign === "-" ? "went" : "" }, `${sign} ${text}`));
      }
    }
    return made;
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!by) return;
    this.select(this.selected + by);
    event.preventDefault();
  }
}

PassesPanel.KEYS = "↑ ↓ the next pass.";
