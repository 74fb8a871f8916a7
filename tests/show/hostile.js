check("nothing ran", typeof window.owned, "undefined");
check("scripts", document.scripts.length, EXPECTED.n_scripts);
check("other elements", all("img, iframe, svg, link, a, object").length, 0);
check("title", document.title.includes(EXPECTED.title));
check("heading", one("h1").textContent, EXPECTED.title);
check("names", PAGE.values.map((value) => value.name), EXPECTED.names);
for (const row of EXPECTED.names.keys()) {
  PAGE.goTo(PAGE.values[row]);
  check(`name ${row}`, one(".value strong").textContent, EXPECTED.names[row]);
  check(`detail ${row}`, one(".value dl").textContent.includes(EXPECTED.what));
}
check("table", texts("tbody .name").sort(), [...EXPECTED.names].sort());
check("kernel", PAGE.data.ticks.map((tick) => tick.name), EXPECTED.names);
// Should mark-up get in after all, the policy of the page stops it.
const script = document.createElement("script");
script.textContent = "window.owned = 1";
document.body.append(script);
const image = document.createElement("div");
image.innerHTML = "<img src=x onerror='window.owned = 2'>";
image.firstChild.dispatchEvent(new Event("error"));
check("the policy holds", typeof window.owned, "undefined");
script.remove();
// A narrow page in the dark, and on paper.
check("width", [innerWidth, document.documentElement.scrollWidth <= innerWidth], [600, true]);
const dark = palette()("--ground");
dispatchEvent(new Event("beforeprint"));
const paper = palette()("--ground");
check("paper is white", [dark !== paper, paper], [true, "#fff"]);
dispatchEvent(new Event("afterprint"));
check("dark again", palette()("--ground"), dark);
