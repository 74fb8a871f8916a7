"use strict";
// Scales: from bytes and ticks to pixels and back, with marks at round numbers.

/** Numbers [low, high] on pixels [first, last]. */
class Scale {
  constructor(low, high, first, last) {
    Object.assign(this, { low, high, first, last });
    this.factor = (last - first) / Math.max(high - low, 1e-9);
  }

  at(number) {
    return this.first + (number - this.low) * this.factor;
  }

  number(pixel) {
    return this.low + (pixel - this.first) / this.factor;
  }
}

/** The least 1, 2 or 5 times a power of ten, of which at most `most` go into the span. */
function roundStep(span, most) {
  for (let power = 1; ; power *= 10) {
    for (const step of [1, 2, 5]) if (step * power * most >= span) return step * power;
  }
}

/** Round ticks within [low, high], with their texts. */
function tickMarks(low, high, most) {
  const step = roundStep(high - low, most);
  const marks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) marks.push([at, grouped(at)]);
  return marks;
}

/** Round amounts of bytes within [low, high] counted from `base`, with their texts in one unit. */
function byteMarks(low, high, most, base = 0) {
  const span = high - low;
  let power = UNITS.length - 1;
  while (power > 0 && span < 2 * 1024 ** power) power -= 1;
  const size = 1024 ** power;
  const step = roundStep(span / size, most) * size;
  const marks = [];
  for (let at = Math.ceil((low - base) / step) * step; at + base <= high; at += step) {
    marks.push([at + base, at === 0 ? "0" : `${grouped(at / size)} ${power ? UNITS[power] : "B"}`]);
  }
  return marks;
}
