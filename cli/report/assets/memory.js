// Memory over time: every rank against the capacity, and one rank by category.

const memoryCategories = page.memory_categories;
const CHART = {width: 620, height: 270, left: 58, right: 10, top: 14, bottom: 26};

function scales(v, most) {
  const w = CHART.width - CHART.left - CHART.right, h = CHART.height - CHART.top - CHART.bottom;
  return {x: (t) => CHART.left + t / v.timeline.end_ps * w, y: (b) => CHART.top + h - b / most * h, w, h};
}

// Steps of GiB that give about five lines.
function memoryTicks(most) {
  const gib = most / 2 ** 30, rough = gib / 5;
  const power = 2 ** Math.floor(Math.log2(rough)), step = rough > power * 1.5 ? 2 * power : power;
  const ticks = [];
  for (let t = 0; t <= gib; t += step) ticks.push(t);
  return ticks;
}

function chartFrame(v, most, capacity, title) {
  const s = scales(v, most);
  const node = svg("svg", {viewBox: `0 0 ${CHART.width} ${CHART.height}`, role: "img", "aria-label": title,
                           class: "chart"});
  for (const t of memoryTicks(most)) {
    const y = s.y(t * 2 ** 30);
    node.append(svg("line", {x1: CHART.left, x2: CHART.width - CHART.right, y1: y, y2: y, class: "grid"}),
                svg("text", {x: CHART.left - 6, y: y + 4, class: "tick end"}, `${+t.toFixed(2)} GiB`));
  }
  for (let i = 0; i <= 4; ++i) {
    const t = v.timeline.end_ps * i / 4;
    node.append(svg("text", {x: s.x(t), y: CHART.height - 8, class: "tick " + (i === 4 ? "end" : i ? "middle" : "")},
                    psText(t)));
  }
  // Drawn last, so that no area hides it.
  const addCapacity = () => capacity && node.append(
      svg("line", {x1: CHART.left, x2: CHART.width - CHART.right, y1: s.y(capacity), y2: s.y(capacity), class: "capacity"}),
      svg("text", {x: CHART.width - CHART.right - 4, y: s.y(capacity) - 5, class: "tick end capacity-text"},
          "capacity " + bytesText(capacity)));
  return [node, s, addCapacity];
}

// Corners of a step function, thinned to one lowest and one highest value per pixel: no peak is lost.
function corners(v, curve, value, s) {
  const points = [];
  let i = 0;
  while (i < curve.n) {
    const x = s.x(curve.at[i]);
    let low = i, high = i, last = i;
    for (; last < curve.n && s.x(curve.at[last]) < x + 0.75; ++last) {
      if (curve.total[last] > curve.total[high]) high = last;
      if (curve.total[last] < curve.total[low]) low = last;
    }
    const kept = [...new Set([i, low, high, last - 1])].sort((a, b) => a - b);
    for (const k of kept) points.push([s.x(curve.at[k]), value(k)]);
    i = last;
  }
  points.push([s.x(v.timeline.end_ps), curve.n ? value(curve.n - 1) : 0]);
  return points;
}
const stepPath = (points, y) => points.map(([x, b], i) =>
    i === 0 ? `M${x.toFixed(1)},${y(b).toFixed(1)}` : `H${x.toFixed(1)}V${y(b).toFixed(1)}`).join("");

function rankChart(v, chosen, most, capacity) {
  const [node, s, addCapacity] = chartFrame(v, most, capacity, `Memory of ${plural(v.curves.length, "rank")} of ${v.label}; highest peak ` +
      bytesText(v.report.memory.peak_bytes));
  for (const curve of v.curves) {
    const points = corners(v, curve, (k) => curve.total[k], s);
    const path = svg("path", {d: stepPath(points, s.y), class: "rank" + (curve === chosen ? " chosen" : "")});
    path.append(svg("title", {}, `rank ${curve.rank}: peak ${bytesText(curve.peak)}`));
    node.append(path);
  }
  addCapacity();
  return node;
}

function stackChart(v, curve, most, capacity) {
  const [node, s, addCapacity] = chartFrame(v, most, capacity, `Memory of rank ${curve.rank} of ${v.label} by category; peak ` +
                               bytesText(curve.peak));
  const below = new Float64Array(curve.n);
  memoryCategories.forEach((c, i) => {
    const under = Float64Array.from(below);
    for (let k = 0; k < curve.n; ++k) below[k] += curve.bytes[i][k];
    const top = corners(v, curve, (k) => below[k], s), floor = corners(v, curve, (k) => under[k], s);
    // Back along the floor: first the vertical, then the horizontal part of each step.
    let back = "";
    for (let k = floor.length - 1; k >= 0; --k)
      back += (k === floor.length - 1 ? `V${s.y(floor[k][1]).toFixed(1)}` :
               `V${s.y(floor[k][1]).toFixed(1)}H${floor[k][0].toFixed(1)}`);
    node.append(svg("path", {d: stepPath(top, s.y) + back + "Z", class: "area mem-" + c.name}));
  });
  const cursor = svg("line", {class: "cursor", y1: CHART.top, y2: CHART.height - CHART.bottom, x1: -9, x2: -9});
  addCapacity();
  node.append(cursor);
  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * CHART.width;
    const t = (x - CHART.left) / s.w * v.timeline.end_ps;
    const k = Math.max(0, firstAbove(curve.at, t) - 1);
    if (t < 0 || t > v.timeline.end_ps || !curve.n) return showMemoryTip(null);
    cursor.setAttribute("x1", x);
    cursor.setAttribute("x2", x);
    showMemoryTip(event, t, memoryCategories.map((c, i) => [c.title, curve.bytes[i][k]]), curve.total[k]);
  });
  node.addEventListener("pointerleave", () => showMemoryTip(null));
  return node;
}

function showMemoryTip(event, t, rows, total) {
  const tip = document.getElementById("tip");
  tip.hidden = !event;
  if (!event) return;
  tip.replaceChildren(el("b", {}, `${bytesText(total)} at ${psText(t)}`), el("dl", {}, rows.filter(([, b]) => b > 0)
      .reverse().flatMap(([name, b]) => [el("dt", {}, name), el("dd", {}, bytesText(b))])));
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
}

function ownersTable(v) {
  const m = v.report.memory;
  const rows = m.owners.map((o) => [o.name, memoryCategories.find((c) => c.name === o.category)?.title ?? o.category,
                                    bytesText(o.bytes), percent(part(o.bytes, m.peak_bytes))]);
  return table(`What is live at the peak: ${bytesText(m.peak_bytes)} on the device of rank ${m.peak_rank} at ` +
               `${timeText(m.peak_at_s)}; ${bytesText(m.reserved_bytes)} of it reserved by the allocator, ` +
               `${bytesText(m.allocated_bytes)} allocated`,
               ["Owner", "Category", "Bytes", "of the peak"], rows, {left: 2});
}
function modulesTable(v) {
  const m = v.report.memory;
  const rows = m.activations.map((a) => [a.module, bytesText(a.bytes), percent(part(a.bytes, m.peak_bytes))]);
  return rows.length ? folded("Activations at the peak by module",
      table("All layers and micro-batches in flight", ["Module", "Bytes", "of the peak"], rows)) : null;
}

function hostRow(name, key) {
  return [name, ...variants.map((v) => v.report.host_memory ? bytesText(v.report.host_memory[key]) : "-")];
}
function categoriesTable() {
  return table("Peak by category", ["Category", ...variants.map((v) => v.label)],
      [...memoryCategories.map((c) => [c.title, ...variants.map((v) => bytesText(v.report.memory.by_category[c.name]))]),
       Object.assign(["Peak on the device", ...variants.map((v) => bytesText(v.report.memory.peak_bytes))], {className: "total"}),
       ["of it reserved by the allocator", ...variants.map((v) => bytesText(v.report.memory.reserved_bytes))],
       ["of that allocated", ...variants.map((v) => bytesText(v.report.memory.allocated_bytes))],
       ["Capacity", ...variants.map((v) => bytesText(v.report.memory.capacity_bytes))],
       ...(variants.some((v) => v.report.host_memory) ? [hostRow("Host memory of a server", "server_bytes"),
                                                         hostRow("NVMe of a server", "server_nvme_bytes")] : [])]);
}

function drawMemory() {
  const charts = el("div", {class: "two charts"});
  const owners = el("div", {});
  const state = {v: running.length ? best : baseline, rank: null};
  const rankChoice = el("select", {onchange: () => { state.rank = Number(rankChoice.value); update(); }});
  const variantChoice = el("select", {onchange: () => {
    state.v = variants[Number(variantChoice.value)];
    state.rank = null;
    update();
  }}, variants.map((v) => el("option", {value: v.index, ...(v === state.v ? {selected: true} : {})}, v.label)));
  function update() {
    const {v} = state;
    const most = 1.08 * Math.max(v.report.memory.peak_bytes, v.report.memory.capacity_bytes, 1,
                                 ...v.curves.map((c) => c.peak));
    const chosen = v.curves.find((c) => c.rank === (state.rank ?? v.report.memory.peak_rank)) || v.curves[0];
    rankChoice.replaceChildren(...v.curves.map((c) => el("option", {value: c.rank, selected: c === chosen},
                                                         `rank ${c.rank} (peak ${bytesText(c.peak)})`)));
    charts.replaceChildren(...(!chosen ? [el("p", {class: "quiet"}, "No memory curve was recorded.")] : [
      el("figure", {}, rankChart(v, chosen, most, chosen.capacity),
         el("figcaption", {}, `All ranks of ${v.label}; rank ${chosen.rank} drawn strong`)),
      el("figure", {}, stackChart(v, chosen, most, chosen.capacity),
         el("figcaption", {}, `Rank ${chosen.rank} by category`),
         legendOfMemory(v))]));
    owners.replaceChildren(...[ownersTable(v), modulesTable(v)].filter((part) => part !== null));
  }
  section("memory", "Memory over time",
      el("div", {class: "toolbar"}, variants.length > 1 ? el("label", {}, "Variant ", variantChoice) : null,
         el("label", {}, "Rank ", rankChoice)),
      el("div", {class: "panel"}, charts), owners, folded("Peak by category, all variants", categoriesTable()));
  update();
}
function legendOfMemory(v) {
  const used = memoryCategories.filter((c, i) => v.curves.some((curve) => curve.bytes[i].some((b) => b > 0)));
  return el("ul", {class: "legend"}, [...used].reverse().map((c) =>
      el("li", {}, el("span", {class: "swatch mem-" + c.name}), c.title)));
}
