// Variants against the baseline, the settings in which they differ, and how to make the page again.

function comparisonRows() {
  return fastestFirst.map((v) => {
    const r = v.report;
    const ok = r.step_time_s !== null;
    const row = [
      el("span", {}, v === best && ok ? "\u2605 " : null, v.label, v === baseline ? el("small", {}, " baseline") : null,
         ok ? null : el("small", {class: "why"}, " " + r.reason)),
      ok ? el("span", {}, timeText(r.step_time_s), r.calibrated ? null : el("small", {}, " uncalibrated"))
         : el("b", {class: "badtext"}, r.status === "deadlock" ? "stuck" : "OOM"),
      speedupText(r), ok ? countText(rateOf(r)) : null, ok ? percent(r.mfu) : null,
      ok ? percent(r.hfu) : null, percent(r.pipeline.bubble_fraction),
      r.pipeline.stages > 1 ? bytesText(r.pipeline.bytes_sent) : null,
      bytesText(r.memory.peak_bytes), percent(memoryShare(r), 0), String(r.world_size)];
    row.className = (ok ? "" : "fails") + (v === best && running.length ? " best" : "");
    return row;
  });
}

function settingsDifferences() {
  const pointers = [...new Set(variants.flatMap((v) => v.settings.map(([p]) => p)))];
  const values = variants.map((v) => new Map(v.settings));
  const differing = pointers.filter((p) => new Set(values.map((m) => m.get(p))).size > 1);
  if (!differing.length) return null;
  const base = values[page.baseline];
  const cell = (m, p) => el("code", {class: m.get(p) === base.get(p) ? "quiet" : "changed"}, m.get(p) ?? "not set");
  const caption = "Settings that differ";
  // The longer list goes down the page.
  if (variants.length > Math.max(4, differing.length))
    return table(caption, ["Variant", ...differing.map((p) => el("code", {}, p.replaceAll("/", "/\u200b")))],
                 variants.map((v, i) => [v.label, ...differing.map((p) => cell(values[i], p))]),
                 {left: 99, className: "settings"});
  return table(caption, ["Setting", ...variants.map((v) => v.label)],
               differing.map((p) => [el("code", {}, p), ...values.map((m) => cell(m, p))]),
               {left: 99, className: "settings"});
}

// Lines of all variants, each once, with the variants that have it unless all do.
function linesOf(linesOfVariant) {
  const labels = new Map();
  for (const v of variants)
    for (const line of new Set(linesOfVariant(v)))
      labels.set(line, [...(labels.get(line) || []), v.label]);
  return [...labels].map(([line, own]) =>
      el("li", {}, own.length < variants.length ? el("b", {}, own.join(", ") + ": ") : null, line));
}

function drawComparison() {
  if (variants.length < 2) return;
  section("compare", "Comparison",
      el("p", {class: "lead"}, `Speed-up is what a variant gets done a second (${page.compares_tokens ? "tokens" : "samples"}) over what `,
         el("b", {}, baseline.label), " does; the fastest stands first. Variants that cannot run stay in the table."),
      table("", ["Variant", "Step", "Speed-up", page.compares_tokens ? "Tokens/s" : "Samples/s", "MFU", "HFU", "Idle", "Sent by stages",
                 "Peak memory", "of capacity", page.device + "s"], comparisonRows(), {className: "comparison"}),
      settingsDifferences());
}

function drawReproduce() {
  const warnings = linesOf((v) => v.report.warnings);
  const assumed = linesOf((v) => (v.report.assumed || []).map(
      (a) => `${a.pointer.slice(1).replaceAll("/", ".")} = ${a.value} (${a.why})`));
  const resolved = variants.filter((v) => v.settings.length);
  const decided = variants.filter((v) => v.report.software && v.report.software.habits.length);
  section("reproduce", "Reproduce",
      page.command ? el("pre", {}, el("code", {}, page.command)) : null,
      assumed.length ? el("div", {class: "callout warn"}, el("h3", {}, "Assumed, as the scenario does not say it"),
                          el("ul", {}, assumed)) : null,
      warnings.length ? el("div", {class: "callout warn"}, el("h3", {}, plural(warnings.length, "warning")),
                           el("ul", {}, warnings)) : el("p", {class: "quiet"}, "No warnings."),
      decided.map((v) => folded(`What ${v.report.software.name} decides` + (variants.length > 1 ? ` of ${v.label}` : ""),
          table("", ["Setting", "Value", "Source"], v.report.software.habits.map((h) =>
              [el("code", {}, h.pointer.slice(1).replaceAll("/", ".")), el("code", {}, h.value), h.source]),
                {left: 3, className: "settings"}))),
      resolved.map((v) => folded(`Resolved settings of ${v.label}`,
          table("", ["Setting", "Value"], v.settings.map(([p, value]) =>
              [el("code", {}, p), el("code", {}, value)]), {left: 2, className: "settings"}))),
      folded("All numbers as JSON", el("pre", {class: "tall"}, el("code", {},
          JSON.stringify(result, null, 2)))));
}
