"use strict";
// Kernels as a list that sorts, and of the selected one what is fused in it, why it ends where it
// does, its loops and its code.

const FIRST_KERNELS = 100;
const MORE_KERNELS = 500;

/** A kernel without its number: those of many layers are of one kind. */
function kernelKind(name) {
  return name.replace(/_[0-9]+$/, "");
}

/** A text that was packed with zlib and base64. */
async function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
}

class KernelsPanel {
  /** `rows` are {name, place, micros, share, nbytes, operations, time, kernel, text}; with
   * `isMeasured` shares are those of time, else of operations; `go(panel, name)` shows a kernel
   * elsewhere, in one of `places`. */
  constructor(host, rows, { isMeasured, texts, nameMark, places, go }) {
    Object.assign(this, { rows, isMeasured, texts, nameMark, places, go });
    this.query = "";
    this.nRows = FIRST_KERNELS;
    this.shownText = "loops";
    this.selected = null;
    const bytes = { name: "bytes", of: (row) => row.nbytes, title: "that one launch reads and writes" };
    const operations = { name: "operations", of: (row) => row.operations, wide: isMeasured, title: "of one launch" };
    this.columns = [
      { name: "kernel", of: (row) => row.name },
      ...(isMeasured ? [{ name: "time", of: (row) => row.micros, title: "in the run that was timed, over all threads" }] : []),
      ...(rows.some((row) => row.nbytes !== null) ? [bytes, operations] : []),
      ...(isMeasured ? [{ name: "of limit", of: (row) => row.time?.limitShare ?? null, wide: true, title: "of what the machine can do at most" }] : []),
    ];
    this.sortBy = isMeasured ? 1 : 2;
    this.isRising = false;
    this.build(host);
    this.draw();
    this.select(this.sorted()[0] ?? null);
  }

  build(host) {
    this.search = element("input", {
      type: "search", placeholder: "search kernels  ( / )", "aria-label": "search kernels", spellcheck: "false",
      input: () => this.find(this.search.value),
    });
    this.found = element("span", { class: "soft", role: "status" });
    this.heads = this.columns.map((column, k) => element("th", { class: `${k ? "number" : ""}${column.wide ? " wide" : ""}` },
      element("button", { type: "button", class: "link", title: column.title, click: () => this.sort(k) }, column.name)));
    this.table = element("tbody");
    this.more = element("button", { type: "button", class: "more", click: () => this.showMore() });
    this.detail = element("aside", { class: "detail" });
    host.append(
      element("div", { class: "map-head" },
        element("h2", {}, counted(this.rows.length, "kernel"),
          element("small", {}, this.isMeasured ? "  times of a run that was measured" : "  bars show operations: --profile measures time")),
        element("div", { class: "tools" }, this.search, this.found)),
      element("div", { class: "halves wide-left" },
        element("div", { class: "scrolls" }, element("table", { class: "kernel-list" }, element("thead", {}, element("tr", {}, this.heads)), this.table), this.more),
        this.detail));
  }

  sorted() {
    const { of } = this.columns[this.sortBy];
    const turn = this.isRising ? 1 : -1;
    const compare = (a, b) => (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
    return this.rows
      .filter((row) => !this.query || row.text.includes(this.query))
      .sort((a, b) => {
        const [x, y] = [of(a), of(b)];
        if (x === null || y === null) return (x === null) - (y === null) || a.place - b.place;
        return turn * compare(x, y) || a.place - b.place;
      });
  }

  sort(column) {
    this.isRising = this.sortBy === column ? !this.isRising : column === 0;
    this.sortBy = column;
    this.draw();
  }

  find(query) {
    this.query = query.trim().toLowerCase();
    if (this.search.value.trim().toLowerCase() !== this.query) this.search.value = query;
    this.nRows = FIRST_KERNELS;
    this.draw();
    const first = this.sorted()[0];
    if (first && this.query) this.select(first);
  }

  draw() {
    const rows = this.sorted();
    const most = Math.max(...this.rows.map((row) => row.share), 1e-9);
    for (const [k, head] of this.heads.entries()) {
      head.setAttribute("aria-sort", k !== this.sortBy ? "none" : this.isRising ? "ascending" : "descending");
    }
    this.found.textContent = this.query ? `${grouped(rows.length)} of ${grouped(this.rows.length)}` : "";
    this.table.replaceChildren(...rows.slice(0, this.nRows).map((row) => this.row(row, most)));
    const left = rows.length - this.nRows;
    this.more.hidden = left <= 0;
    this.more.textContent = `show ${grouped(Math.min(left, MORE_KERNELS))} more of ${counted(left, "kernel")}`;
    this.mark();
  }

  row(row, most) {
    const meter = element("div", { class: "meter" }, element("i"));
    meter.firstChild.style.width = `${(100 * row.share) / most}%`;
    const time = row.micros === null ? (row.kernel?.atLoad ? "at load" : "–") : readableMicros(row.micros);
    const cells = {
      kernel: [breakable(row.name), meter],
      time: [time, row.micros === null ? null : element("small", {}, ` ${percent(row.share)}`)],
      bytes: [row.nbytes === null ? "–" : readableBytes(row.nbytes)],
      operations: [row.operations === null ? "–" : readableCount(row.operations)],
      "of limit": [row.time?.bound ? `${percent(row.time.limitShare)} ${row.time.bound}` : "–"],
    };
    return element("tr", { "data-place": row.place, click: () => this.select(row) },
      this.columns.map(({ name, wide }, k) => element("td", { class: `${k ? "number" : "name"}${wide ? " wide" : ""}` }, cells[name])));
  }

  showMore() {
    this.nRows += MORE_KERNELS;
    this.draw();
  }

  mark() {
    for (const row of this.table.children) {
      row.classList.toggle("selected", Number(row.dataset.place) === this.selected?.place);
    }
  }

  /** To a kernel by name, whatever is searched for. */
  goTo(name) {
    const row = this.rows.find((one) => one.name === name);
    if (!row) return;
    this.search.value = this.query = "";
    const at = this.sorted().indexOf(row);
    this.nRows = Math.max(this.nRows, at + 1);
    this.draw();
    this.select(row);
  }

  select(row) {
    this.selected = row;
    this.mark();
    const shown = this.table.querySelector("tr.selected");
    if (shown) shown.scrollIntoView({ block: "nearest" });
    this.drawDetail();
  }

  drawDetail() {
    const row = this.selected;
    this.detail.replaceChildren();
    if (!row) return;
    const { kernel, time } = row;
    const most = (amount) => (kernel.varies ? `up to ${amount}` : amount);
    const nodes = kernel?.nodes.map(([op, role, type]) => element("li", {}, element("b", {}, op), element("small", {}, ` ${role}, ${type}`))) ?? [];
    if (kernel && kernel.nNodes > kernel.nodes.length) nodes.push(element("li", { class: "soft" }, `and ${grouped(kernel.nNodes - kernel.nodes.length)} more`));
    const links = this.places.filter((place) => !kernel?.atLoad || place === "memory").map((place) =>
      element("button", { type: "button", click: () => this.go(place, row.name) }, `in ${place}`));
    this.detail.append(
      factList(row.name, [
        ["from", kernel ? kernel.origins.join(", ") : time?.origin],
        ["when", kernel?.atLoad ? "once, before the first run: it reads constants alone" : ""],
        ["time", row.micros === null ? "" : `${readableMicros(row.micros)}, ${percent(row.share)} of a run`],
        ["of its limit", time?.bound ? `${percent(time.limitShare)} of what ${time.bound} allows` : ""],
        ["rates", time && (time.gops || time.gbytes) ? `${time.gops.toFixed(1)} Gop/s, ${time.gbytes.toFixed(1)} GB/s` : ""],
        ["ran", time ? [time.runs ? `${counted(time.runs, "run")}, ` : "", counted(time.tiles, "tile")].join("") : ""],
        ["reads", kernel && most(exactBytes(kernel.reads))],
        ["writes", kernel && most(exactBytes(kernel.writes))],
        ["operations", kernel && most(grouped(kernel.operations))],
        ["loops over", kernel?.space],
        ["cut into", kernel && `${kernel.tiles === "1" ? "1 tile" : `${kernel.tiles} tiles`}${kernel.group.length ? `, groups of ${kernel.group.join(" x ")}` : ""}`],
        ["reads of", kernel?.readsOf.join(", ")],
        ["ends here", kernel?.border ? `because ${kernel.border}` : ""],
      ]),
      ...(links.length ? [element("div", { class: "places" }, links)] : []),
      ...(nodes.length ? [element("h3", {}, counted(kernel.nNodes, "node"), " fused into it"), element("ol", { class: "nodes" }, nodes)] : []));
    if (kernel) this.drawTexts(row);
  }

  drawTexts(row) {
    const pre = element("pre", { class: "code-text", tabindex: "0", "aria-label": "code of the kernel" });
    const names = { loops: "loops", source: "generated code" };
    const buttons = Object.entries(names).map(([which, name]) =>
      element("button", { type: "button", "data-text": which, click: () => this.showText(row, which, pre, buttons) }, name));
    this.cut = element("p", { class: "cut" });
    this.detail.append(element("div", { class: "texts" }, buttons), this.cut, pre);
    this.showText(row, this.shownText, pre, buttons);
  }

  async showText(row, which, pre, buttons) {
    this.shownText = which;
    for (const button of buttons) button.setAttribute("aria-pressed", button.dataset.text === which);
    const number = row.kernel[which];
    if (number === null) {
      pre.textContent = "left out: the texts of all kernels would make this page too large. The program has it in Python: executable.kernels[...].source";
      return;
    }
    const text = (await unpacked(this.texts[number])).replaceAll(this.nameMark, row.name);
    if (this.selected !== row || this.shownText !== which) return;
    // How it is cut stands on top of the loops.
    const notes = which === "loops" ? text.match(/^(\/\/.*\n)+/)?.[0] ?? "" : "";
    this.cut.textContent = notes.replace(/^\/\/ ?/gm, "").trim();
    pre.textContent = text.slice(notes.length);
    pre.scrollTop = 0;
  }

  key(event) {
    if (event.key === "Escape") {
      this.search.value = "";
      this.search.blur();
      this.find("");
      return;
    }
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by) {
      const rows = this.sorted();
      const at = Math.min(Math.max(rows.indexOf(this.selected) + by, 0), rows.length - 1);
      if (at >= this.nRows) this.showMore();
      if (rows.length) this.select(rows[at]);
    } else if (event.key === "/" && event.target !== this.search) {
      this.search.focus();
    } else if (event.key === "c" && event.target !== this.search) {
      this.detail.querySelector(`[data-text=${this.shownText === "loops" ? "source" : "loops"}]`)?.click();
    } else {
      return;
    }
    event.preventDefault();
  }
}

KernelsPanel.KEYS = "↑ ↓ the next kernel, c loops or code, / searches, Esc clears; a column's head sorts by it.";
