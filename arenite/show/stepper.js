"use strict";
// Stepper: a slider over numbers, with buttons and keys, that can play.

const PLAY_MS = 120;

class Stepper {
  /** `stops` are numbers in rising order, `first` is where it begins; `on.step(number)` is called
   * at each change. */
  constructor(host, stops, first, on) {
    this.stops = stops;
    this.on = on;
    this.index = this.indexOf(first);
    this.timer = null;
    const button = (text, title, click) => element("button", { type: "button", title, click }, text);
    this.slider = element("input", {
      type: "range", min: 0, max: Math.max(stops.length - 1, 0), step: 1, value: this.index,
      "aria-label": "tick", input: () => this.go(Number(this.slider.value)),
    });
    this.play = button("play", "play (space)", () => this.toggle());
    host.append(
      this.slider,
      element("div", { class: "buttons" },
        button("«", "first (Home)", () => this.go(0)),
        button("‹", "back (←; ten with Shift)", () => this.move(-1)),
        this.play,
        button("›", "on (→; ten with Shift)", () => this.move(1)),
        button("»", "last (End)", () => this.go(this.stops.length - 1))),
    );
  }

  /** Other numbers; it stays as near as it can to where it is. */
  setStops(stops) {
    const { number } = this;
    this.stops = stops;
    this.slider.max = Math.max(stops.length - 1, 0);
    // A thumb stands in the middle of its number, as on a map beside it.
    this.slider.style.setProperty("--stop", 1 / Math.max(stops.length, 1));
    this.goTo(number);
  }

  get number() {
    return this.stops[this.index] ?? 0;
  }

  go(index) {
    this.index = Math.min(Math.max(index, 0), Math.max(this.stops.length - 1, 0));
    this.slider.value = this.index;
    this.on.step(this.number);
  }

  move(by) {
    this.go(this.index + by);
  }

  goTo(number) {
    this.go(this.indexOf(number));
  }

  /** The last stop that is not behind a number, or the first. */
  indexOf(number) {
    let [low, high] = [0, this.stops.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stops[middle] <= number) low = middle + 1;
      else high = middle;
    }
    return Math.max(low - 1, 0);
  }

  toggle() {
    const isPlaying = this.timer !== null;
    clearInterval(this.timer);
    this.timer = null;
    this.play.textContent = isPlaying ? "play" : "pause";
    if (isPlaying) return;
    if (this.index >= this.stops.length - 1) this.go(0);
    this.timer = setInterval(() => {
      this.move(1);
      if (this.index >= this.stops.length - 1) this.toggle();
    }, PLAY_MS);
  }

  /** Whether a key was one of its own. */
  key(event) {
    const far = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => this.move(-far),
      ArrowRight: () => this.move(far),
      Home: () => this.go(0),
      End: () => this.go(this.stops.length - 1),
      " ": () => this.toggle(),
    };
    actions[event.key]?.();
    return event.key in actions;
  }
}
