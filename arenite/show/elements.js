"use strict";
// Elements, texts and colours for every page. Texts come from strangers: they become text nodes,
// never mark-up.

/** An element; attributes that are functions listen to the event of their name. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child != null));
  return made;
}

/** A small square in a colour of the page's styles: "--kind-0". */
function swatch(variable) {
  const made = element("i", { class: "swatch" });
  made.style.background = `var(${variable})`;
  return made;
}

/** The head of a page: what it is about, and pairs of a name and an amount. */
function pageHeader(title, facts) {
  return element("header", {}, element("h1", {}, title),
    element("dl", {}, facts.map(([name, amount]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, amount)))));
}

/** A part of a bar, as wide as its share. */
function barRun(label, amount, share, variable, attributes) {
  const made = element("button", { type: "button", ...attributes }, element("b", {}, label), element("span", {}, amount));
  made.style.flexGrow = share;
  made.style.background = `var(${variable})`;
  made.style.color = `var(${variable}-text, var(--on-box))`;
  return made;
}

/** Pairs of a name and what is told of it, where there is something. */
function factList(title, pairs) {
  return element("div", { class: "facts" }, element("strong", {}, title),
    element("dl", {}, pairs.filter(([, told]) => told != null && told !== "").map(([name, told]) => [
      element("dt", {}, name), element("dd", {}, told)]).flat()));
}

const UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/** 1536 becomes "1.5 KiB". */
function readableBytes(nbytes) {
  let power = 0;
  while (power < UNITS.length - 1 && nbytes >= 1024 ** (power + 1)) power += 1;
  const amount = nbytes / 1024 ** power;
  return `${power ? Number(amount.toPrecision(4)) : amount} ${UNITS[power]}`;
}

/** With the exact number behind it, where that is another. */
function exactBytes(nbytes) {
  return nbytes < 1024 ? readableBytes(nbytes) : `${readableBytes(nbytes)} (${grouped(nbytes)} bytes)`;
}

/** 12345 becomes "12,345". */
function grouped(number) {
  return number.toLocaleString("en-US");
}

/** 12345678 becomes "12.3 M". */
function readableCount(number) {
  const power = number < 1000 ? 0 : Math.min(Math.floor(Math.log10(number) / 3), 4);
  return power ? `${Number((number / 1000 ** power).toPrecision(3))} ${" kMGT"[power]}` : String(number);
}

/** A long name that may go on in the next line behind "_" and ".". */
function breakable(name) {
  return name.split(/(?<=[_.])/).flatMap((part, k) => (k ? [element("wbr"), part] : [part]));
}

/** "1 value", "2 values". */
function counted(number, noun, plural = `${noun}s`) {
  return `${grouped(number)} ${number === 1 ? noun : plural}`;
}

/** 1234.5 becomes "1.23 ms". */
function readableMicros(micros) {
  const [amount, unit] = micros >= 1e6 ? [micros / 1e6, "s"] : micros >= 1000 ? [micros / 1000, "ms"] : [micros, "µs"];
  return `${Number(amount.toPrecision(3))} ${unit}`;
}

/** "0.4 %"; what is there is never nothing. */
function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1 %";
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}

/** Colours of the page's styles as they are now: in the light, in the dark, in print. */
function palette() {
  const styles = getComputedStyle(document.documentElement);
  return (variable) => styles.getPropertyValue(variable).trim();
}

/** Whether the page goes to print. */
function isPrinting() {
  return document.documentElement.classList.contains("printing");
}

/** Calls `redraw` when colours change, and around printing, which is always in the light. */
function onColours(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const printing = (is) => () => {
    document.documentElement.classList.toggle("printing", is);
    redraw();
  };
  addEventListener("beforeprint", printing(true));
  addEventListener("afterprint", printing(false));
}

/** A canvas that fills a host, sharp on every screen; returns what makes it ready to be drawn on. */
function sharpCanvas(host, attributes = {}) {
  const canvas = element("canvas", attributes);
  host.append(canvas);
  const ready = () => {
    const ratio = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = host;
    const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
    const context = canvas.getContext("2d");
    if (canvas.width !== wide || canvas.height !== tall) Object.assign(canvas, { width: wide, height: tall });
    else context.reset();
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    return { context, width, height };
  };
  return { canvas, ready };
}
