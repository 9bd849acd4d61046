// GPUs over the step, as a monitor shows them: small charts on one time axis, one rank at a time.

const TRACE = {width: 620, height: 150, left: 58, right: 12, top: 12, bottom: 22};

// What each chart shows; a line is [title, class, values of a rank as drawn].
function traceKinds(m, rank) {
  const seconds = rank.lengths;
  const share = (key) => rank[key].map((f) => 100 * f);
  const rate = (key) => rank[key].map((bytes, i) => bytes / seconds[i]);
  const any = (...keys) => keys.some((key) => rank[key].some((x) => x > 0));
  const percents = (x) => x.toFixed(x < 10 ? 1 : 0) + "\u00a0%";
  const watts = (x) => x.toFixed(0) + "\u00a0W", degrees = (x) => x.toFixed(1) + "\u00a0\u00b0C";
  return [
    {name: "Utilisation", most: 100, text: percents, note: "nvidia-smi counts kernels that only wait",
     lines: [["GPU busy (nvidia-smi: sm)", "a", share("busy")], ["multiprocessors held", "b", share("multiprocessors")],
             ["compute kernels", "c", share("kernels")]]},
    rank.power_w[0] === null ? null :
        {name: "Power", text: watts, lines: [["board", "d", rank.power_w]], mean: rank.energy_j / rank.whole},
    rank.temperature_c[0] === null ? null :
        {name: "Temperature", text: degrees, near: true, lines: [["GPU", "d", rank.temperature_c]]},
    {name: "Memory controller", text: percents, most: 100, lines: [["kernels' bytes over the peak", "b", share("memory_controller")]]},
    {name: "Memory", text: bytesText, binary: true, limit: [rank.memory_capacity_bytes, "capacity"],
     lines: [["held (nvidia-smi: fb)", "a", rank.busy.map(() => rank.memory_held_bytes)], ["live", "c", rank.memory_live_bytes]]},
    !any("nvlink_in_bytes", "nvlink_out_bytes") ? null :
        {name: "NVLink", text: rateText, lines: [["in", "a", rate("nvlink_in_bytes")], ["out", "b", rate("nvlink_out_bytes")]]},
    !any("pcie_in_bytes", "pcie_out_bytes") ? null :
        {name: "PCIe", text: rateText, lines: [["in", "a", rate("pcie_in_bytes")], ["out", "b", rate("pcie_out_bytes")]]},
  ].filter(Boolean);
}

// A round number of steps between the ends of an axis.
function axisOf(kind) {
  const values = kind.lines.flatMap(([, , list]) => list);
  const top = Math.max(...values, kind.most ?? 0, kind.limit ? kind.limit[0] : 0, 1e-9);
  const bottom = kind.near ? Math.min(...values) : 0;
  if (kind.most) return {low: 0, high: Math.max(kind.most, top), step: kind.most / 4};
  const base = kind.binary ? 2 : 10, rough = Math.max(top - bottom, kind.near ? 1 : 1e-9) / 3;
  const size = base ** Math.floor(Math.log(rough) / Math.log(base));
  const step = (base === 2 ? [1, 2] : [1, 2, 5, 10]).map((k) => k * size).find((s) => s >= rough);
  const low = Math.floor(bottom / step) * step;
  return {low, high: Math.max(Math.ceil(top / step) * step, low + step), step};
}

function traceChart(v, rank, kind, cursors) {
  const {width, height, left, right, top, bottom} = TRACE;
  const axis = axisOf(kind), w = width - left - right, h = height - top - bottom;
  const x = (t) => left + t / rank.whole * w, y = (value) => top + h - (value - axis.low) / (axis.high - axis.low) * h;
  const node = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", class: "chart trace",
                           "aria-label": `${kind.name} of rank ${rank.rank} of ${v.label} over the step`});
  for (let value = axis.low; value <= axis.high * 1.0001; value += axis.step)
    node.append(svg("line", {x1: left, x2: width - right, y1: y(value), y2: y(value), class: "grid"}),
                svg("text", {x: left - 6, y: y(value) + 4, class: "tick end"}, kind.text(value)));
  for (let i = 0; i <= 4; ++i)
    node.append(svg("text", {x: x(rank.whole * i / 4), y: height - 5, class: "tick " + (i === 4 ? "end" : i ? "middle" : "")},
                    timeText(rank.whole * i / 4)));
  if (kind.limit && kind.limit[0] <= axis.high)
    node.append(svg("line", {x1: left, x2: width - right, y1: y(kind.limit[0]), y2: y(kind.limit[0]), class: "capacity"}),
                svg("text", {x: width - right - 4, y: y(kind.limit[0]) - 4, class: "tick end capacity-text"},
                    kind.limit[1] + " " + kind.text(kind.limit[0])));
  if (kind.mean !== undefined)
    node.append(svg("line", {x1: left, x2: width - right, y1: y(kind.mean), y2: y(kind.mean), class: "mean"}),
                svg("text", {x: left + 4, y: y(kind.mean) - 4, class: "tick"}, "mean " + kind.text(kind.mean)));
  for (const [title, shade, values] of kind.lines) {
    const path = svg("path", {class: "line line-" + shade + (title === "out" ? " dashed" : ""), d: values.map((value, i) =>
        `${i ? "V" : `M${x(rank.begins[0]).toFixed(1)},`}${y(value).toFixed(1)}H${x(rank.begins[i] + rank.lengths[i]).toFixed(1)}`)
        .join("")});
    path.append(svg("title", {}, title));
    node.append(path);
  }
  const cursor = svg("line", {class: "cursor", y1: top, y2: top + h, x1: -9, x2: -9});
  node.append(cursor);
  cursors.push((t) => { for (const end of ["x1", "x2"]) cursor.setAttribute(end, t === null ? -9 : x(t)); });
  node.addEventListener("pointermove", (event) => {
    const box = node.getBoundingClientRect();
    const t = ((event.clientX - box.left) / box.width * width - left) / w * rank.whole;
    const outside = t < 0 || t > rank.whole;
    for (const show of cursors) show(outside ? null : t);
    showTraceTip(outside ? null : event, v, rank, t);
  });
  node.addEventListener("pointerleave", () => {
    for (const show of cursors) show(null);
    showTraceTip(null);
  });
  return el("figure", {class: "panel"}, el("figcaption", {}, el("b", {}, kind.name), kind.lines.length > 1 || kind.note
      ? el("span", {class: "keys"}, kind.lines.map(([title, shade]) =>
          el("span", {}, el("span", {class: "swatch line-" + shade}), title))) : null), node);
}

function showTraceTip(event, v, rank, t) {
  const tip = document.getElementById("tip");
  tip.hidden = !event;
  if (!event) return;
  const i = Math.min(rank.begins.length, Math.max(1, firstAbove(rank.begins, t))) - 1;
  tip.replaceChildren(el("b", {}, `rank ${rank.rank}, ${timeText(rank.begins[i])} on`), el("dl", {}, traceKinds(v.report.monitor, rank)
      .flatMap((kind) => kind.lines.flatMap(([title, , values]) =>
          [el("dt", {}, kind.lines.length > 1 ? `${kind.name}: ${title}` : kind.name), el("dd", {}, kind.text(values[i]))]))));
  tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
}

// Instants and lengths of samples, in seconds from the first.
function readRank(m, rank) {
  const first = m.begin_s[0], whole = rank.busy.length && m.step_s;
  const begins = m.begin_s.map((t) => t - first);
  return {...rank, begins, whole, lengths: begins.map((t, i) => (i + 1 < begins.length ? begins[i + 1] : whole) - t)};
}

function drawMonitor() {
  for (const v of variants) {
    const m = v.report.monitor;
    if (!m || !m.ranks.length) continue;
    const ranks = m.ranks.map((rank) => readRank(m, rank));
    let rank = ranks.find((r) => r.rank === v.report.slowest_rank) || ranks[0];
    const charts = el("div", {class: "traces"}), energy = v.report.energy;
    const redraw = () => {
      const cursors = [];
      charts.replaceChildren(...traceKinds(m, rank).map((kind) => traceChart(v, rank, kind, cursors)));
    };
    const choice = el("select", {onchange: (event) => { rank = ranks[Number(event.target.value)]; redraw(); }},
        ranks.map((r, i) => el("option", {value: String(i), selected: r === rank},
            `rank ${r.rank}, stage ${r.stage}` + (r.count > 1 ? `, like ${r.count - 1} more` : ""))));
    redraw();
    section("monitor" + (v.index || ""), "GPU monitor" + (variants.length > 1 ? ": " + v.label : ""),
        el("p", {class: "lead"}, `What nvidia-smi and DCGM would show of a ${m.gpu}, in ${plural(m.begin_s.length, "sample")} of ` +
           `${timeText(m.interval_s)}; on the same time axis as the timeline. `,
           energy ? `The step takes ${countText(energy.step_j / 3600)} Wh in all GPUs, a mean of ${energy.mean_w_per_gpu.toFixed(0)} W ` +
                    `in each${energy.per_token_j === null ? "" : `, ${scaled(energy.per_token_j, [[1, "J"], [1e-3, "mJ"]])} a token`}.` : ""),
        el("label", {class: "choice"}, "Rank ", choice), charts);
  }
}
