"use strict";
// Chat: a conversation with a server of OpenAI's API, as it comes.

class Chat {
  /** `ask(body, signal)` gives the response of the server; `on.busy(is)` is told. */
  constructor(host, ask, on = {}) {
    this.ask = ask;
    this.on = on;
    this.messages = [];
    this.running = null;
    this.options = { temperature: 0.8, max_tokens: 512, seed: "", system: "" };
    this.build(host);
  }

  build(host) {
    this.log = element("div", { class: "talk", role: "log", "aria-live": "polite", "aria-label": "conversation", tabindex: "0" });
    this.input = element("textarea", {
      rows: "2", placeholder: "Write a message", "aria-label": "message",
      keydown: (event) => this.key(event), input: () => this.grow(),
    });
    this.button = element("button", { type: "submit", class: "send" }, "Send");
    this.note = element("p", { class: "soft note", role: "status" }, "Enter sends, Shift+Enter breaks the line, Esc stops.");
    const form = element("form", {
      class: "write", submit: (event) => {
        event.preventDefault();
        if (this.running) this.stop();
        else this.send();
      },
    }, this.input, this.button);
    host.append(this.log, form, element("div", { class: "under" }, this.note, this.settings()));
    this.welcome();
  }

  settings() {
    const field = (name, label, attributes) => element("label", {}, label,
      element("input", { ...attributes, value: this.options[name], change: (event) => { this.options[name] = event.target.value; } }));
    const system = element("label", { class: "across" }, "told first",
      element("textarea", { rows: "2", change: (event) => { this.options.system = event.target.value; } }));
    return element("details", {}, element("summary", {}, "Settings"), element("div", { class: "settings" },
      field("temperature", "temperature", { type: "number", min: "0", max: "2", step: "0.1" }),
      field("max_tokens", "tokens at most", { type: "number", min: "1" }),
      field("seed", "seed", { type: "number", min: "0", placeholder: "any" }),
      system,
      element("button", { type: "button", click: () => this.clear() }, "New conversation")));
  }

  welcome() {
    this.log.replaceChildren(element("p", { class: "soft welcome" }, "Say something. What you write stays on the machine this server runs on."));
  }

  grow() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, 220)}px`;
  }

  key(event) {
    if (event.key === "Escape") this.stop();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!this.running) this.send();
  }

  clear() {
    this.stop();
    this.messages = [];
    this.welcome();
    this.input.focus();
  }

  stop() {
    this.running?.abort();
  }

  body() {
    const { temperature, max_tokens: limit, seed, system } = this.options;
    const told = system.trim() ? [{ role: "system", content: system.trim() }] : [];
    const body = { messages: [...told, ...this.messages], stream: true, stream_options: { include_usage: true } };
    if (temperature !== "") body.temperature = Number(temperature);
    if (limit !== "") body.max_tokens = Number(limit);
    if (seed !== "") body.seed = Number(seed);
    return body;
  }

  async send() {
    const text = this.input.value.trim();
    if (!text) return;
    const { messages } = this; // a new conversation may begin meanwhile
    if (!messages.length) this.log.replaceChildren();
    messages.push({ role: "user", content: text });
    this.log.append(element("article", { class: "user" }, element("p", {}, text)));
    this.input.value = "";
    this.grow();
    const answer = element("article", { class: "assistant busy" });
    this.log.append(answer);
    this.begin();
    const state = { text: "", usage: null, started: performance.now(), first: null };
    try {
      await this.read(state, answer);
      this.tell(answer, state);
    } catch (problem) {
      if (problem.name !== "AbortError") answer.append(element("p", { class: "problem" }, problem.message));
      else this.tell(answer, state, "stopped");
    }
    answer.classList.remove("busy");
    if (state.text) {
      messages.push({ role: "assistant", content: state.text });
    } else {
      messages.pop();
      this.input.value ||= text; // to be sent again
      this.grow();
    }
    this.end();
  }

  begin() {
    this.running = new AbortController();
    this.log.setAttribute("aria-busy", "true"); // read out once it is whole
    this.button.textContent = "Stop";
    this.on.busy?.(true);
    this.follow();
  }

  end() {
    this.running = null;
    this.log.setAttribute("aria-busy", "false");
    this.button.textContent = "Send";
    this.on.busy?.(false);
    this.follow();
  }

  async read(state, answer) {
    const response = await this.ask(this.body(), this.running.signal);
    let drawn = 0;
    for await (const event of serverEvents(response.body)) {
      if (event.error) throw new Error(event.error.message);
      state.usage = event.usage ?? state.usage;
      const text = event.choices[0]?.delta?.content ?? "";
      if (!text) continue;
      state.first ??= performance.now();
      state.text += text;
      // Long answers are drawn a few times a second: the whole of them is read again each time.
      if (performance.now() - drawn > Math.min(state.text.length / 40, 250)) {
        this.draw(answer, state.text);
        drawn = performance.now();
      }
    }
    this.draw(answer, state.text);
  }

  draw(answer, text) {
    answer.replaceChildren(...markdown(text));
    this.follow();
  }

  /** What the answer took, below it. */
  tell(answer, { usage, started, first }, how = "") {
    const facts = [how];
    if (usage) {
      const seconds = (performance.now() - (first ?? started)) / 1000;
      facts.push(counted(usage.completion_tokens, "token"), `${(usage.completion_tokens / seconds).toFixed(0)} a second`);
      facts.push(`first after ${((first ?? started) - started).toFixed(0)} ms`);
      const kept = usage.prompt_tokens_details?.cached_tokens ?? 0;
      facts.push(`${counted(usage.prompt_tokens, "token")} read, ${grouped(kept)} of them known`);
    }
    answer.append(element("p", { class: "soft took" }, facts.filter(Boolean).join(" · ")));
  }

  /** Keeps the end in sight, unless someone reads further up. */
  follow() {
    const { log } = this;
    if (log.scrollHeight - log.scrollTop - log.clientHeight < 160) log.scrollTop = log.scrollHeight;
  }
}

/** The objects of a stream of events. */
async function* serverEvents(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}
