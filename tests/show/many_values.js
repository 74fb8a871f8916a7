check("boxes", PAGE.map.boxes.length, EXPECTED.n);
let drawn = 0;
const draw = PAGE.map.draw;
PAGE.map.draw = function () {
  drawn += 1;
  return draw.call(this);
};
// To hover and to step draws outlines alone, not thousands of boxes.
const canvas = all(".map canvas").at(-1);
const { width, height } = canvas.getBoundingClientRect();
let told_ = 0;
for (let k = 0; k < 50; k += 1) {
  point(canvas, "pointermove", 80 + ((width - 90) * k) / 50, 10 + ((height - 40) * ((k * 7) % 50)) / 50);
  told_ += !one(".hover").hidden;
}
check("hovered", told_ > 10);
press("Home");
for (let k = 0; k < 50; k += 1) press("ArrowRight");
check("stepped", PAGE.stepper.number, EXPECTED.stops[50]);
check("drawn", drawn, 0);
// What is hovered is what lies there.
for (const box of PAGE.map.boxes.slice(0, 200)) {
  const { x, y } = PAGE.map.scales();
  const found = PAGE.map.boxAt(x.at((box.x0 + box.x1) / 2), y.at((box.y0 + box.y1) / 2));
  check(`box ${box.label}`, found === box);
}
check("rows of the table", all("tbody tr").length < 100);
one(".more").click();
check("more rows", all("tbody tr").length > 300);
