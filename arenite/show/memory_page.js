"use strict";
// The page of a memory plan alone.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MAIN = document.querySelector("main");
MAIN.append(pageHeader(DATA.title, DATA.facts));
const PAGE = new MemoryPanel(MAIN, DATA);
MAIN.append(element("footer", { class: "soft" }, `Keys: ${MemoryPanel.KEYS}`));
document.addEventListener("keydown", (event) => PAGE.key(event));
