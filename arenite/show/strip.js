"use strict";
// Strip: an amount over time as a narrow area, with the part that a map shows, and a cursor.

class Strip {
  /** `on.click(x)` goes to a place, `on.brush(x0, x1)` zooms to a part; `name` says what the amount
   * is, and `text(amount)` how much. */
  constructor(host, on, { name = "live", about = "live bytes over time", text = readableBytes } = {}) {
    this.host = host;
    this.on = on;
    Object.assign(this, { name, text });
    this.points = [];
    this.cursor = null;
    this.window = null;
    this.canvas = sharpCanvas(host, { "aria-label": about, role: "img" });
    this.listen();
    new ResizeObserver(() => this.draw()).observe(host);
  }

  /** `points` are [x, amount]: from x on. */
  show(points, x0, x1, high) {
    Object.assign(this, { points, x0, x1, high });
    this.draw();
  }

  scale() {
    return new Scale(this.x0, this.x1, MAP_LEFT, Math.max(this.host.clientWidth - MAP_RIGHT, MAP_LEFT + 1));
  }

  draw() {
    if (!this.host.clientWidth || this.x0 === undefined) return;
    const colour = palette();
    const { context, height } = this.canvas.ready();
    const x = this.scale();
    const y = new Scale(0, Math.max(this.high, 1), height - 1, 4);
    context.fillStyle = colour("--map");
    context.fillRect(x.first, 0, x.last - x.first, height);
    context.beginPath();
    context.moveTo(x.first, y.first);
    let last = 0;
    for (const [at, amount] of this.points) {
      context.lineTo(x.at(at), y.at(last));
      context.lineTo(x.at(at), y.at(amount));
      last = amount;
    }
    context.lineTo(x.last, y.at(last));
    context.lineTo(x.last, y.first);
    context.fillStyle = colour("--area");
    context.fill();
    context.fillStyle = colour("--soft");
    context.textAlign = "right";
    context.textBaseline = "top";
    context.fillText(this.text(this.high), x.first - 7, 2);
    context.textBaseline = "bottom";
    context.fillText(this.name, x.first - 7, height);
    if (this.window && (this.window.x0 > this.x0 || this.window.x1 < this.x1)) {
      context.fillStyle = colour("--shade");
      context.fillRect(x.first, 0, x.at(this.window.x0) - x.first, height);
      context.fillRect(x.at(this.window.x1), 0, x.last - x.at(this.window.x1), height);
    }
    if (this.cursor !== null) drawCursor(context, colour, x, this.cursor, 0, height);
  }

  listen() {
    const { canvas } = this.canvas;
    let from = null;
    const place = (event) => event.clientX - canvas.getBoundingClientRect().left;
    canvas.addEventListener("pointerdown", (event) => {
      from = place(event);
      if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (from === null || Math.abs(place(event) - from) <= DRAG_FROM) return;
      const [low, high] = [from, place(event)].sort((a, b) => a - b);
      const x = this.scale();
      this.on.brush(x.number(low), x.number(high));
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from !== null && Math.abs(place(event) - from) <= DRAG_FROM) {
        this.on.click(Math.floor(this.scale().number(place(event))));
      }
      from = null;
    });
    canvas.addEventListener("pointercancel", () => (from = null));
  }
}
