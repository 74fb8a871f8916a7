"use strict";
// Markdown as elements: paragraphs, headings, lists, quotes, tables, code, links. What a model
// writes is a stranger's text: it becomes text nodes inside of elements made here, never mark-up.

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]*)/;
const HEADING = /^(#{1,6})\s+(.*?)\s*#*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const TABLE_LINE = /^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*\|?\s*$/;
const INLINE = /(`+)(.+?)\1|\*\*(.+?)\*\*|__(.+?)__|\*([^\s*].*?)\*|\b_([^\s_].*?)_\b|~~(.+?)~~|\[([^\]]+)\]\((https?:[^\s)]+)\)/s;
const MAX_DEPTH = 6; // of lists, quotes and emphasis within each other

/** The elements of a text. */
function markdown(text) {
  return blocks(text.replace(/\r\n?/g, "\n").split("\n"), 0);
}

function blocks(lines, depth) {
  const made = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    const fence = line.match(FENCE);
    const heading = line.match(HEADING);
    if (!line.trim()) {
      at += 1;
    } else if (fence) {
      const end = lines.findIndex((one, n) => n > at && one.trim().startsWith(fence[1]));
      const last = end < 0 ? lines.length : end;
      made.push(codeBlock(lines.slice(at + 1, last).join("\n"), fence[2]));
      at = last + 1;
    } else if (heading) {
      made.push(element(`h${Math.min(heading[1].length + 2, 6)}`, {}, inline(heading[2], 0)));
      at += 1;
    } else if (RULE.test(line)) {
      made.push(element("hr"));
      at += 1;
    } else if (line.startsWith(">") && depth < MAX_DEPTH) {
      const end = endOf(lines, at, (one) => one.startsWith(">"));
      const inner = lines.slice(at, end).map((one) => one.replace(/^> ?/, ""));
      made.push(element("blockquote", {}, blocks(inner, depth + 1)));
      at = end;
    } else if (ITEM.test(line) && depth < MAX_DEPTH) {
      const [, indent, mark] = line.match(ITEM);
      // An item of another kind, no deeper than the first one, begins a list of its own.
      const isOther = (item) => item[1].length <= indent.length && /\d/.test(item[2]) !== /\d/.test(mark);
      const isItem = (one) => ITEM.test(one) && !isOther(one.match(ITEM));
      const end = endOf(lines, at, (one, n) => isItem(one) || (!ITEM.test(one) && /^\s{2,}\S/.test(one)) || (!one.trim() && isItem(lines[n + 1] ?? "")));
      made.push(list(lines.slice(at, end), depth));
      at = end;
    } else if (line.includes("|") && TABLE_LINE.test(lines[at + 1] ?? "")) {
      const end = endOf(lines, at + 2, (one) => one.includes("|"));
      made.push(table(lines.slice(at, end)));
      at = end;
    } else {
      const end = endOf(lines, at + 1, (one) => one.trim() && ![FENCE, HEADING, ITEM, RULE].some((form) => form.test(one)) && !one.startsWith(">"));
      made.push(element("p", {}, inline(lines.slice(at, end).join("\n"), 0)));
      at = end;
    }
  }
  return made;
}

/** The first line from `at` on that is not like those before it. */
function endOf(lines, at, belongs) {
  let end = at;
  while (end < lines.length && belongs(lines[end], end)) end += 1;
  return end;
}

function codeBlock(text, language) {
  const copy = element("button", { type: "button", class: "copy", click: () => navigator.clipboard?.writeText(text) }, "copy");
  return element("div", { class: "code" }, element("div", { class: "code-head" }, language || "code", copy),
    element("pre", {}, element("code", {}, text)));
}

function list(lines, depth) {
  const [, indent, mark] = lines[0].match(ITEM);
  const made = element(/\d/.test(mark) ? "ol" : "ul", /\d/.test(mark) ? { start: parseInt(mark, 10) } : {});
  let inner = [];
  const close = () => inner.length && made.append(element("li", {}, itemContent(inner, depth)));
  for (const line of lines) {
    const item = line.match(ITEM);
    if (item && item[1].length <= indent.length) {
      close();
      inner = [item[3]];
    } else {
      inner.push(line.replace(/^\s{1,4}/, ""));
    }
  }
  close();
  return made;
}

/** A single paragraph stands in its item without space around it. */
function itemContent(lines, depth) {
  const made = blocks(lines, depth + 1);
  return made[0]?.tagName === "P" ? [...made[0].childNodes, ...made.slice(1)] : made;
}

function table(lines) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => cell.trim());
  const row = (tag) => (line) => element("tr", {}, cells(line).map((cell) => element(tag, {}, inline(cell, 0))));
  return element("table", {}, element("thead", {}, row("th")(lines[0])), element("tbody", {}, lines.slice(2).map(row("td"))));
}

/** Text with emphasis, code and links. */
function inline(text, depth) {
  const made = [];
  let rest = text;
  while (rest) {
    const found = depth < MAX_DEPTH ? rest.match(INLINE) : null;
    if (!found) {
      made.push(rest);
      break;
    }
    if (found.index) made.push(rest.slice(0, found.index));
    const [all, , code, strong, strongToo, em, emToo, gone, label, address] = found;
    if (code !== undefined) made.push(element("code", {}, code));
    else if (strong ?? strongToo) made.push(element("strong", {}, inline(strong ?? strongToo, depth + 1)));
    else if (em ?? emToo) made.push(element("em", {}, inline(em ?? emToo, depth + 1)));
    else if (gone) made.push(element("del", {}, inline(gone, depth + 1)));
    else made.push(element("a", { href: address, rel: "noopener noreferrer", target: "_blank" }, label));
    rest = rest.slice(found.index + all.length);
  }
  return made;
}
