"use strict";
// BoxMap: boxes on two axes, on a canvas, with zoom, hover and selection. Thousands stay fluid:
// the boxes are drawn when the window changes; cursor, outlines and hover lie on a second canvas.

const MAP_LEFT = 74;
const MAP_BOTTOM = 24;
const MAP_TOP = 6;
const MAP_RIGHT = 8;
const LEAST_LETTERS = 4; // of a name that does not fit
const LEAST_LABEL = 14; // pixels that a line of text needs
const LEAST_PIXELS = 8; // of a box that is seen
const DRAG_FROM = 4; // pixels that tell a drag from a click

/** A tick: a line, or where that has room the span between two. */
function drawCursor(context, colour, x, tick, top, bottom) {
  const [left, right] = [x.at(tick), x.at(tick + 1)];
  context.fillStyle = colour("--cursor");
  if (right - left < 6) {
    context.fillRect(left, top, Math.max(right - left, 1.5), bottom - top);
    return;
  }
  context.fillRect(left - 1, top, 2, bottom - top);
  context.fillRect(right - 1, top, 2, bottom - top);
  context.globalAlpha = 0.08;
  context.fillRect(left, top, right - left, bottom - top);
  context.globalAlpha = 1;
}

class BoxMap {
  /**
   * `boxes` are {x0, x1, y0, y1, colour, label, kind, value}; colour is a variable of the
   * styles, and `kind` the name for where there is little room.
   * `on.tell(box)` gives the element of the hover, `on.click(box or null, x)` is called;
   * `on.paint(context, colour, scales)` draws more below the boxes, `on.paintTop` more over them.
   * `axes` are those that zoom, `least` what is seen of each at the least, `xMarks` marks across.
   */
  constructor(host, on, { label = "memory map", axes = "xy", least = [2, 16], xMarks = tickMarks } = {}) {
    this.host = host;
    this.on = on;
    Object.assign(this, { axes, least, xMarks });
    this.boxes = [];
    this.base = sharpCanvas(host);
    this.top = sharpCanvas(host, { tabindex: "0", "aria-label": label, role: "img" });
    this.hover = element("div", { class: "hover", hidden: true });
    host.append(this.hover);
    this.outlined = new Map(); // of values: the colour of their outline
    this.isFaded = () => false; // of boxes
    this.lines = []; // {y, colour, label} across
    this.cursor = null; // x
    this.whole = this.window = { x0: 0, x1: 1, y0: 0, y1: 1 };
    this.listen();
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /** Other boxes, on other axes. */
  show(boxes, whole, yMarks, lines = []) {
    // The large first, so that the small lie on them.
    const area = (box) => (box.x1 - box.x0) * (box.y1 - box.y0);
    this.boxes = [...boxes].sort((a, b) => area(b) - area(a));
    this.whole = whole;
    this.yMarks = yMarks;
    this.lines = lines;
    this.zoomTo(whole);
  }

  /** The part that is seen, inside of the whole. */
  zoomTo(window) {
    const { whole } = this;
    const fit = (low, high, from, to, least) => {
      const size = Math.min(Math.max(high - low, Math.min(least, to - from)), to - from);
      const start = Math.min(Math.max((low + high - size) / 2, from), to - size);
      return [start, start + size];
    };
    const [x0, x1] = fit(window.x0, window.x1, whole.x0, whole.x1, this.least[0]);
    const [y0, y1] = fit(window.y0, window.y1, whole.y0, whole.y1, this.least[1]);
    this.window = { x0, x1, y0, y1 };
    this.draw();
    this.on.zoom?.(this.window);
  }

  /** Larger by a factor around a point, by default the middle. */
  zoomBy(factor, x = this.middle("x"), y = this.middle("y"), axes = this.axes) {
    const { x0, x1, y0, y1 } = this.window;
    const around = (low, high, at) => [at - (at - low) / factor, at + (high - at) / factor];
    const [left, right] = axes.includes("x") ? around(x0, x1, x) : [x0, x1];
    const [low, high] = axes.includes("y") ? around(y0, y1, y) : [y0, y1];
    this.zoomTo({ x0: left, x1: right, y0: low, y1: high });
  }

  /** Along the x axis, by a share of what is seen. */
  pan(share) {
    const { x0, x1 } = this.window;
    const by = (x1 - x0) * share;
    this.zoomTo({ ...this.window, x0: x0 + by, x1: x1 + by });
  }

  middle(axis) {
    if (axis === "x" && this.cursor >= this.window.x0 && this.cursor < this.window.x1) return this.cursor + 0.5;
    return (this.window[`${axis}0`] + this.window[`${axis}1`]) / 2;
  }

  /** Shows a box with what is around it, where it is out of sight or too small to be seen. */
  reveal(box) {
    const { window } = this;
    const scales = this.scales();
    const isTiny = Math.min((box.x1 - box.x0) * scales.x.factor, (box.y0 - box.y1) * scales.y.factor) < LEAST_PIXELS;
    const isInside = box.x0 < window.x1 && box.x1 > window.x0 && box.y0 < window.y1 && box.y1 > window.y0;
    if (isInside && !isTiny) return;
    const [width, height] = [box.x1 - box.x0, box.y1 - box.y0];
    const { x0, x1, y0, y1 } = this.whole;
    const [across, up] = [Math.max(width * 2, (x1 - x0) / 40), Math.max(height * 4, (y1 - y0) / 20)];
    this.zoomTo({ x0: box.x0 - across, x1: box.x1 + across, y0: box.y0 - up, y1: box.y1 + up });
  }

  scales() {
    const { clientWidth: width, clientHeight: height } = this.host;
    const { x0, x1, y0, y1 } = this.window;
    return {
      x: new Scale(x0, x1, MAP_LEFT, Math.max(width - MAP_RIGHT, MAP_LEFT + 1)),
      y: new Scale(y0, y1, Math.max(height - MAP_BOTTOM, MAP_TOP + 1), MAP_TOP),
    };
  }

  /** What lies under a pixel; of several, what is drawn last. */
  boxAt(left, top) {
    const { x, y } = this.scales();
    if (left < x.first || left > x.last || top < y.last || top > y.first) return null;
    const [tick, byte] = [x.number(left), y.number(top)];
    const slack = { x: 1 / x.factor, y: -1 / y.factor }; // a pixel
    const under = (by) => (box) =>
      box.x0 - slack.x * by <= tick && tick < box.x1 + slack.x * by &&
      box.y0 - slack.y * by <= byte && byte < box.y1 + slack.y * by;
    return this.boxes.findLast(under(0)) ?? this.boxes.findLast(under(2)) ?? null;
  }

  draw() {
    if (!this.host.clientWidth) return;
    const colour = palette();
    const { context } = this.base.ready();
    const { x, y } = this.scales();
    context.fillStyle = colour("--map");
    context.fillRect(x.first, y.last, x.last - x.first, y.first - y.last);
    this.drawMarks(context, colour, x, y);
    context.save();
    context.beginPath();
    context.rect(x.first, y.last, x.last - x.first, y.first - y.last);
    context.clip();
    this.on.paint?.(context, colour, { x, y });
    const edge = colour("--map");
    const colours = new Map();
    for (const box of this.boxes) {
      if (box.x1 <= x.low || box.x0 >= x.high || box.y1 <= y.low || box.y0 >= y.high) continue;
      const left = x.at(box.x0);
      const upper = y.at(box.y1);
      const wide = Math.max(x.at(box.x1) - left, 0.6);
      const tall = Math.max(y.at(box.y0) - upper, 0.6);
      if (!colours.has(box.colour)) colours.set(box.colour, colour(box.colour));
      const isFaded = this.isFaded(box);
      context.globalAlpha = isFaded ? 0.16 : 1;
      context.fillStyle = colours.get(box.colour);
      context.fillRect(left, upper, wide, tall);
      if (Math.min(wide, tall) > 3) {
        context.strokeStyle = edge;
        context.lineWidth = 0.8;
        context.strokeRect(left, upper, wide, tall);
      }
      if (isFaded || Math.min(wide, tall) < LEAST_LABEL) continue;
      if (wide >= 30) this.drawLabel(context, colour, box, left, upper, wide, tall, x);
      else if (tall >= 48) this.drawUpright(context, colour, box, left, upper, wide, tall, y);
    }
    context.restore();
    for (const line of this.lines) {
      if (line.y < y.low || line.y > y.high) continue;
      context.setLineDash([6, 4]);
      context.strokeStyle = colour(line.colour);
      context.lineWidth = 1.4;
      context.beginPath();
      context.moveTo(x.first, y.at(line.y));
      context.lineTo(x.last, y.at(line.y));
      context.stroke();
      context.setLineDash([]);
    }
    // Clearing the upper canvas in print would clear what lies below it, too.
    if (isPrinting()) this.paintTop(context);
    else this.drawTop();
  }

  drawMarks(context, colour, x, y) {
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const [at, text] of this.yMarks?.(y.low, y.high, Math.max(2, (y.first - y.last) / 48)) ?? []) {
      context.strokeStyle = colour("--grid");
      context.beginPath();
      context.moveTo(x.first, y.at(at));
      context.lineTo(x.last, y.at(at));
      context.stroke();
      context.fillStyle = colour("--soft");
      context.fillText(text, x.first - 7, Math.min(Math.max(y.at(at), MAP_TOP + 5), y.first - 4));
    }
    context.textAlign = "center";
    for (const [at, text] of this.xMarks(x.low, x.high, Math.max(2, (x.last - x.first) / 80))) {
      const pixel = x.at(at);
      context.strokeStyle = colour("--soft");
      context.beginPath();
      context.moveTo(pixel, y.first);
      context.lineTo(pixel, y.first + 4);
      context.stroke();
      context.fillStyle = colour("--soft");
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(pixel, x.last + MAP_RIGHT - half), y.first + 14);
    }
  }

  drawLabel(context, colour, box, left, upper, wide, tall, x) {
    const start = Math.max(left, x.first);
    const room = Math.min(left + wide, x.last) - start - 8;
    this.putLabel(context, colour, box, room, start + 4 + room / 2, upper + tall / 2 + 0.5);
  }

  /** In a box that is high and narrow, from the bottom up. */
  drawUpright(context, colour, box, left, upper, wide, tall, y) {
    const start = Math.max(upper, y.last);
    const room = Math.min(upper + tall, y.first) - start - 8;
    context.save();
    context.translate(left + wide / 2 + 0.5, start + 4 + room / 2);
    context.rotate(-Math.PI / 2);
    this.putLabel(context, colour, box, room, 0, 0);
    context.restore();
  }

  /** The name of a box, or as much of its kind as has room, around a point. */
  putLabel(context, colour, box, room, across, down) {
    const width = (text) => context.measureText(text).width;
    let fits = [box.label, box.kind].find((text) => width(text) <= room);
    if (fits === undefined) {
      const letters = Math.floor((box.kind.length * room) / width(box.kind)) - 1;
      if (letters < LEAST_LETTERS) return;
      fits = `${box.kind.slice(0, letters)}…`;
    }
    context.fillStyle = colour(`${box.colour}-text`) || colour("--on-box");
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(fits, across, down);
  }

  /** Cursor and outlines. */
  drawTop() {
    this.paintTop(this.top.ready().context);
  }

  paintTop(context) {
    const colour = palette();
    const { x, y } = this.scales();
    context.beginPath();
    context.rect(x.first, y.last, x.last - x.first, y.first - y.last);
    context.clip();
    if (this.cursor !== null) drawCursor(context, colour, x, this.cursor, y.last, y.first);
    this.on.paintTop?.(context, colour, { x, y });
    for (const box of this.boxes) {
      const outline = this.outlined.get(box.value) ?? (box === this.hovered ? "--text" : null);
      if (!outline) continue;
      const left = x.at(box.x0);
      const upper = y.at(box.y1);
      context.strokeStyle = colour(outline);
      context.lineWidth = 2.5;
      context.strokeRect(left, upper, Math.max(x.at(box.x1) - left, 2), Math.max(y.at(box.y0) - upper, 2));
    }
  }

  listen() {
    const { canvas } = this.top;
    let drag = null;
    const place = (event) => {
      const { left, top } = canvas.getBoundingClientRect();
      return [event.clientX - left, event.clientY - top];
    };
    canvas.addEventListener("pointerdown", (event) => {
      const [left, top] = place(event);
      drag = { left, top, window: this.window, isMoved: false };
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [left, top] = place(event);
      if (drag && Math.hypot(left - drag.left, top - drag.top) > DRAG_FROM) drag.isMoved = true;
      if (drag?.isMoved) {
        const { x, y } = this.scales();
        const across = (drag.left - left) / x.factor;
        const up = (drag.top - top) / y.factor;
        const { x0, x1, y0, y1 } = drag.window;
        this.setHover(null);
        this.zoomTo({ x0: x0 + across, x1: x1 + across, y0: y0 + up, y1: y1 + up });
      } else {
        this.setHover(this.boxAt(left, top), left, top);
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      const [left, top] = place(event);
      const isClick = drag && !drag.isMoved;
      drag = null;
      const { x } = this.scales();
      if (isClick && left >= x.first) this.on.click?.(this.boxAt(left, top), Math.floor(x.number(left)));
    });
    canvas.addEventListener("pointercancel", () => (drag = null));
    canvas.addEventListener("pointerleave", () => this.setHover(null));
    canvas.addEventListener("dblclick", (event) => {
      const [left, top] = place(event);
      const { x, y } = this.scales();
      this.zoomBy(2, x.number(left), y.number(top));
    });
    // A plain wheel scrolls the page.
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.shiftKey && !event.altKey) return;
      event.preventDefault();
      const [left, top] = place(event);
      const { x, y } = this.scales();
      const factor = Math.exp(-(event.deltaY || event.deltaX) / 300);
      const axes = event.shiftKey ? "x" : event.altKey ? "y" : this.axes;
      this.zoomBy(factor, x.number(left), y.number(top), axes);
    }, { passive: false });
  }

  setHover(box, left = 0, top = 0) {
    if (box !== this.hovered) {
      this.hovered = box;
      this.hover.replaceChildren(...(box ? [this.on.tell(box)] : []));
      this.drawTop();
    }
    this.hover.hidden = !box;
    if (!box) return;
    const { clientWidth: width } = this.host;
    const { offsetWidth: wide, offsetHeight: tall } = this.hover;
    this.hover.style.left = `${Math.max(0, Math.min(left + 14, width - wide))}px`;
    this.hover.style.top = `${top - tall - 12 > -60 ? top - tall - 12 : top + 18}px`;
  }
}
