// To rent GPUs or to buy servers: dollars of one GPU over the years.

const dollars = (x) => x === null ? "\u2013" : x >= 1e4 ? "$" + countText(x) : "$" + x.toFixed(2);
const yearsText = (y) => y === null ? "never" : y < 1 ? digits3(12 * y) + " months" : digits3(y) + " years";

function spentChart(v, c) {
  const [width, height, left, right, top, bottom] = [620, 270, 62, 14, 14, 28];
  const last = c.curve[c.curve.length - 1], most = 1.05 * Math.max(last.cloud, last.own);
  const w = width - left - right, h = height - top - bottom;
  const x = (t) => left + t / last.years * w, y = (d) => top + h - d / most * h;
  const node = svg("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", class: "chart",
                           "aria-label": `Dollars spent on one GPU of ${v.label} over ${last.years.toFixed(1)} years`});
  const size = 10 ** Math.floor(Math.log10(most / 4)), step = [1, 2, 5, 10].map((k) => k * size).find((s) => s >= most / 4);
  for (let d = 0; d <= most; d += step)
    node.append(svg("line", {x1: left, x2: width - right, y1: y(d), y2: y(d), class: "grid"}),
                svg("text", {x: left - 6, y: y(d) + 4, class: "tick end"}, d ? dollars(d) : "$0"));
  for (let t = 0, every = last.years > 12 ? 5 : last.years > 3 ? 1 : 0.5; t <= last.years * 1.001; t += every)
    node.append(svg("text", {x: x(t), y: height - 8, class: "tick middle"}, t ? `${t} y` : "0"));
  for (const key of ["cloud", "own"])
    node.append(svg("path", {class: "line line-" + (key === "cloud" ? "d" : "c"),
                             d: c.curve.map((p, i) => `${i ? "L" : "M"}${x(p.years).toFixed(1)},${y(p[key]).toFixed(1)}`).join("")}),
                svg("text", {x: left + 0.1 * w, y: y(c.curve[0][key] + 0.1 * (last[key] - c.curve[0][key])) - 8, class: "tick end"},
                    key === "cloud" ? "rented" : "own"));
  if (c.break_even_years !== null && c.break_even_years <= last.years) {
    const at = x(c.break_even_years), spent = y(c.break_even_gpu_hours * c.cloud_gpu_hour);
    node.append(svg("line", {x1: at, x2: at, y1: spent, y2: top + h, class: "mean"}), svg("circle", {cx: at, cy: spent, r: 4, class: "meet"}),
                svg("text", {x: at + (at > width / 2 ? -6 : 6), y: top + h - 6, class: "tick" + (at > width / 2 ? " end" : "")},
                    "pays after " + yearsText(c.break_even_years)));
  }
  return node;
}

function drawCost() {
  for (const v of variants) {
    const c = v.report.cloud_or_own;
    if (!c) continue;
    const purchase = c.own_gpu_hour - c.energy_per_gpu_hour - c.fixed_per_gpu_hour;
    const verdict = c.break_even_years === null ? "Owning never pays: running a GPU of one's own costs more than renting one." :
        `${c.own_is_cheaper ? "Owning" : "Renting"} is cheaper: a GPU of one's own costs ${dollars(c.own_gpu_hour)} an hour of training, ` +
        `a rented one ${dollars(c.cloud_gpu_hour)}. The purchase is earned back after ${yearsText(c.break_even_years)}, ` +
        `${countText(c.break_even_gpu_hours)} hours of training` + (c.own_is_cheaper ? "." : `, beyond its ${c.years} years.`);
    section("cost" + (v.index || ""), "Cloud or own" + (variants.length > 1 ? ": " + v.label : ""),
        el("p", {class: "lead"}, verdict, c.training_cloud_dollars === null ? "" :
           ` This training: ${dollars(c.training_cloud_dollars)} rented, ${dollars(c.training_own_dollars)} on its own GPUs.`),
        el("div", {class: "two"}, el("div", {class: "panel"}, el("h3", {}, "Spent on one GPU"), spentChart(v, c)),
           el("div", {class: "panel"}, el("h3", {}, "By how much of the time it trains"),
              table("", ["Trains", "Own GPU-hour", "Cloud", "Pays after"], c.by_utilisation.map((u) => Object.assign(
                  [percent(u.utilisation, 0), dollars(u.own_gpu_hour), dollars(c.cloud_gpu_hour), yearsText(u.break_even_years)],
                  {className: u.utilisation === c.utilisation ? "total" : undefined}))),
              el("p", {class: "quiet"}, `An hour of one's own is ${dollars(purchase)} of the purchase over ${c.years} years, ` +
                 `${dollars(c.energy_per_gpu_hour)} of electricity (${c.watts_per_gpu.toFixed(0)} W with its share of the host, ` +
                 `${c.pue} times that at the site), ${dollars(c.fixed_per_gpu_hour)} of hosting and staff.`))));
  }
}
