// Shared by all sections: the data, the document, words and numbers.

// Control characters and those that reorder text are shown as what they are.
const visible = (text) => text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g,
    (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
const parse = (id) => JSON.parse(document.getElementById(id).textContent,
    (key, value) => typeof value === "string" ? visible(value) : value);

const result = parse("result");
const page = parse("page");
const variants = result.variants.map((report, i) => ({...page.variants[i], report, index: i,
                                                      label: report.label}));
const baseline = variants[page.baseline];
const running = variants.filter((v) => v.report.step_time_s !== null);
const fastestFirst = page.fastest_first.map((i) => variants[i]);
const best = running.length ? fastestFirst[0] : baseline;
const rateOf = (r) => page.compares_tokens ? r.tokens_per_s : r.samples_per_s;

// An element with attributes and children; text only ever becomes text.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === false || value === null) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "css") Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}
function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children.flat());
  return node;
}

function section(id, title, ...children) {
  document.getElementById("contents").append(el("li", {}, el("a", {href: "#" + id}, title)));
  const node = el("section", {id, "aria-labelledby": id + "-title"},
                  el("h2", {id: id + "-title"}, title), ...children);
  document.getElementById("main").append(node);
  return node;
}

// rows: arrays of strings, numbers or nodes; numeric columns are right-aligned by `left` columns of text.
function table(caption, head, rows, {left = 1, className = ""} = {}) {
  const cell = (tag, value, i, extra = {}) =>
      el(tag, {class: i >= left ? "number" : "text", ...extra}, value ?? "\u2013");
  return el("div", {class: "scroll"}, el("table", {class: className},
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, head.map((h, i) => cell("th", h, i, {scope: "col"})))),
      el("tbody", {}, rows.map((row) => el("tr", {class: row.className}, row.map(
          (value, i) => i === 0 ? cell("th", value, i, {scope: "row"}) : cell("td", value, i)))))));
}
function folded(summary, ...children) {
  return el("details", {}, el("summary", {}, summary), ...children);
}

const digits3 = (x) => {
  const size = Math.abs(x);
  return size >= 100 ? x.toFixed(0) : size >= 10 ? x.toFixed(1) : x.toFixed(2);
};
const scaled = (x, units) => {
  const unit = units.find(([scale]) => Math.abs(x) >= scale) || units[units.length - 1];
  return digits3(x / unit[0]) + "\u00a0" + unit[1];
};
const timeText = (s) => s === null ? "\u2013" : s === 0 ? "0\u00a0s" : scaled(s,
    [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"], [1e-9, "ns"], [1e-12, "ps"]]);
const psText = (ps) => timeText(ps / 1e12);
const bytesText = (b) => Math.abs(b) < 1024 ? b + "\u00a0B" : scaled(b,
    [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]);
const rateText = (b) => scaled(b, [[1e12, "TB/s"], [1e9, "GB/s"], [1e6, "MB/s"], [1e3, "kB/s"], [1, "B/s"]]);
const countText = (n) => n >= 1e12 ? digits3(n / 1e12) + "\u00a0T" : n >= 1e9 ? digits3(n / 1e9) + "\u00a0B" :
    n >= 1e6 ? digits3(n / 1e6) + "\u00a0M" : n >= 1e4 ? digits3(n / 1e3) + "\u00a0k" :
    Number.isInteger(n) ? String(n) : digits3(n);
const part = (a, b) => b > 0 ? a / b : 0;
const percent = (f, places = 1) => (f * 100).toFixed(places) + "\u00a0%";
const plural = (n, word) => n + " " + word + (n === 1 ? "" : /[hs]$/.test(word) ? "es" : "s");
const speedupText = (r) => r.speedup === null ? "\u2013" : r.speedup.toFixed(2) + "\u00d7";
const memoryShare = (r) => part(r.memory.peak_bytes, r.memory.capacity_bytes);

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
