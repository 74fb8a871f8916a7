"use strict";
// The page of a server: a chat, and the machine at work beside it, asked for once a second.

const ASK_EVERY = 1000; // milliseconds
const KEPT = 120; // measurements in the curve
const N_COLOURS = 6; // of texts

class ServePage {
  constructor(main, data) {
    this.data = data;
    this.key = "";
    this.history = [];
    this.main = main;
    this.build();
    onColours(() => this.draw());
    this.tick();
  }

  build() {
    const { data } = this;
    const chatHost = element("section", { class: "chat" });
    this.machine = element("section", { class: "machine", "aria-label": "the machine at work", tabindex: "0" });
    this.status = element("span", { class: "soft" }); // changes every second: not to be read out
    this.main.append(
      element("header", {}, element("h1", {}, data.name), this.status,
        element("a", { href: "memory" }, "memory map"), element("a", { href: "metrics" }, "metrics")),
      chatHost, this.machine);
    if (data.chats) this.chat = new Chat(chatHost, (body, signal) => this.ask("v1/chat/completions", body, signal));
    else chatHost.append(element("p", { class: "soft" }, data.about));
    this.buildMachine();
  }

  buildMachine() {
    const facts = element("dl", { class: "facts-row" });
    this.facts = new Map(["made a second", "read a second", "texts", "waiting"].map((name) => {
      const value = element("dd", {}, "–");
      facts.append(element("div", {}, element("dt", {}, name), value));
      return [name, value];
    }));
    this.spark = element("div", { class: "spark" });
    this.curve = sharpCanvas(this.spark, { role: "img", "aria-label": "tokens a second over the last two minutes" });
    this.pages = element("div", { class: "pages" });
    this.grid = sharpCanvas(this.pages, { role: "img", "aria-label": "pages of keys and values" });
    this.pageNote = element("p", { class: "soft" });
    this.texts = element("tbody");
    this.kernels = element("tbody");
    const { regions, total } = this.data.memory;
    const bar = element("div", { class: "regions", role: "img", "aria-label": "planned memory by region" });
    const legend = element("div", { class: "legend" });
    for (const region of regions) {
      const part = element("i", { title: `${region.about}: ${exactBytes(region.nbytes)}` });
      part.style.flex = `${region.nbytes / total} 1 0`;
      part.style.background = `var(--${region.name})`;
      bar.append(part);
      legend.append(element("span", {}, swatch(`--${region.name}`), `${region.about} ${readableBytes(region.nbytes)}`));
    }
    const heads = (...names) => element("thead", {}, element("tr", {}, names.map((name, n) => element("th", { class: n ? "number" : null }, name))));
    this.memoryNote = element("p", { class: "soft" });
    const live = this.data.chats ? [
      element("section", {}, element("h2", {}, "Tokens"), facts, this.spark),
      element("section", {}, element("h2", {}, "Keys and values, page by page"), this.pages, this.pageNote,
        element("table", {}, heads("text", "state", "tokens", "pages"), this.texts)),
    ] : [];
    this.machine.append(
      ...live,
      element("section", {}, element("h2", {}, `Memory, as planned: ${readableBytes(total)}`), bar, legend, this.memoryNote),
      element("section", {}, element("h2", {}, "Kernels that cost most"), element("table", {}, heads("kernel", "share"), this.kernels)),
    );
  }

  /** A request with the key, if one is needed; asks for it once where the server wants one. */
  async ask(path, body, signal) {
    const headers = { ...(body && { "content-type": "application/json" }), ...(this.key && { authorization: `Bearer ${this.key}` }) };
    const response = await fetch(path, { method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal });
    if (response.status === 401 && (body || !this.refused)) {
      this.refused = true;
      this.key = prompt("This server asks for an API key:") ?? "";
      if (this.key) return this.ask(path, body, signal);
    }
    if (response.ok) return response;
    const told = await response.json().catch(() => null);
    const said = told?.error?.message ?? told?.error ?? `the server answered ${response.status}`;
    throw new Error(response.status === 429 ? `${said} (again in ${response.headers.get("retry-after") ?? 1} s)` : said);
  }

  async tick() {
    if (!document.hidden) {
      try {
        const response = await this.ask("stats");
        this.show(await response.json());
      } catch (problem) {
        this.status.textContent = problem instanceof TypeError ? "the server does not answer" : problem.message;
      }
    }
    setTimeout(() => this.tick(), ASK_EVERY);
  }

  show(stats) {
    this.status.textContent = `${counted(stats.requests, "request")} answered, up for ${this.span(stats.uptime)}`;
    this.memoryNote.textContent = `in use by the process: ${readableBytes(stats.resident)}`;
    this.kernels.replaceChildren(...stats.kernels.map(({ name, share }) => {
      const meter = element("i");
      meter.style.width = `${share * 100}%`;
      return element("tr", {}, element("td", {}, name, element("div", { class: "meter" }, meter)), element("td", { class: "number" }, `${(share * 100).toFixed(0)} %`));
    }));
    if (!this.data.chats) return;
    this.last = stats;
    this.history = [...this.history, stats.tokens_a_second].slice(-KEPT);
    const told = {
      "made a second": stats.tokens_a_second.toFixed(0),
      "read a second": stats.prompt_tokens_a_second.toFixed(0),
      texts: `${stats.texts.length} of ${stats.slots}`,
      waiting: `${stats.waiting} of ${stats.queue}`,
    };
    for (const [name, value] of Object.entries(told)) this.facts.get(name).textContent = value;
    const { lent, idle, free, tokens } = stats.pages;
    this.pageNote.textContent = `pages of ${tokens} tokens: ${grouped(lent)} in use, ${grouped(idle)} kept for texts that begin alike, ${grouped(free)} empty`;
    this.texts.replaceChildren(...stats.texts.map((text) => element("tr", {},
      element("td", {}, swatch(this.colour(text.slot)), `text ${text.number}`),
      element("td", { class: "number" }, text.state), element("td", { class: "number" }, grouped(text.tokens)),
      element("td", { class: "number" }, grouped(text.pages.length)))));
    this.draw();
  }

  colour(slot) {
    return `--kind-${slot % N_COLOURS}`;
  }

  span(seconds) {
    if (seconds < 120) return `${seconds.toFixed(0)} s`;
    return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
  }

  draw() {
    if (!this.last) return;
    this.drawCurve();
    this.drawPages();
  }

  drawCurve() {
    const colour = palette();
    const { context, width, height } = this.curve.ready();
    const most = Math.max(...this.history, 10);
    const at = (value, n) => [width - (this.history.length - 1 - n) * (width / (KEPT - 1)), height - 14 - (value / most) * (height - 24)];
    context.fillStyle = colour("--soft");
    context.fillText(`${most.toFixed(0)}`, 0, 10);
    context.strokeStyle = colour("--grid");
    context.beginPath();
    context.moveTo(0, height - 13.5);
    context.lineTo(width, height - 13.5);
    context.stroke();
    context.strokeStyle = colour("--accent");
    context.lineWidth = 1.5;
    context.beginPath();
    this.history.forEach((value, n) => context.lineTo(...at(value, n)));
    context.stroke();
    context.fillText("2 min", 0, height - 2);
    context.textAlign = "right";
    context.fillText("now", width, height - 2);
  }

  /** Every page a cell, in the colour of the text that has it; shared ones are striped. */
  drawPages() {
    const colour = palette();
    const { context, width, height } = this.grid.ready();
    const { count } = this.last.pages;
    const owners = new Map();
    for (const text of this.last.texts) {
      for (const page of text.pages) owners.set(page, [...(owners.get(page) ?? []), text.slot]);
    }
    let size = Math.sqrt((width * height) / count);
    while (Math.floor(width / size) * Math.floor(height / size) < count) size *= 0.98;
    const across = Math.floor(width / size);
    const gap = size > 5 ? 1 : 0;
    for (let page = 0; page < count; page += 1) {
      const [left, top] = [(page % across) * size, Math.floor(page / across) * size];
      const slots = owners.get(page);
      if (!slots) {
        context.fillStyle = colour("--grid");
        context.fillRect(left, top, size - gap, size - gap);
        continue;
      }
      slots.forEach((slot, n) => {
        context.fillStyle = colour(this.colour(slot));
        const tall = (size - gap) / slots.length;
        context.fillRect(left, top + n * tall, size - gap, tall);
      });
    }
  }
}

new ServePage(document.querySelector("main"), JSON.parse(document.getElementById("data").textContent));
