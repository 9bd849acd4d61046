// Summary: what won, what each variant does, what the numbers rest on, where the largest losses are.

function verdict() {
  const r = best.report;
  if (running.length === 0)
    return el("p", {class: "verdict"}, variants.length > 1 ? "No variant runs: " : "",
              r.reason || "the step has no time", ".");
  const time = el("strong", {}, timeText(r.step_time_s));
  if (variants.length === 1)
    return el("p", {class: "verdict"}, r.verdict);
  const name = el("strong", {}, best.label);
  const gain = r.speedup === null ? "" :
      best === baseline ? ", and it is the baseline" : `, ${speedupText(r)} the speed of ${baseline.label}`;
  const lost = variants.length - running.length;
  return el("p", {class: "verdict"}, name, running.length === 1 ? " is the only variant that runs: " :
            ` is the fastest of ${plural(variants.length, "variant")}: `, time, " a step", gain, ".", r.memory.tight ? " Its memory is tight." : "",
            lost && running.length > 1 ? ` ${plural(lost, "variant")} ${lost === 1 ? "does" : "do"} not run.` : "");
}

function badge(v) {
  const r = v.report;
  if (r.status === "deadlock") return el("span", {class: "badge bad"}, "never finishes");
  if (r.status !== "ok") return el("span", {class: "badge bad"}, "does not fit");
  if (v === baseline && variants.length > 1) return el("span", {class: "badge"}, "baseline");
  if (variants.length === 1) return r.memory.tight ? el("span", {class: "badge warn"}, "fits tightly")
                                                   : el("span", {class: "badge good"}, "fits");
  if (r.memory.tight) return el("span", {class: "badge warn"}, speedupText(r) + ", tight");
  return el("span", {class: "badge " + (r.speedup >= 1 ? "good" : "warn")}, speedupText(r));
}

function memoryBar(r) {
  const share = memoryShare(r);
  const scale = Math.max(1, share);
  return el("div", {class: "membar", role: "img", "aria-label":
                    `memory peak ${bytesText(r.memory.peak_bytes)} of ${bytesText(r.memory.capacity_bytes)}`},
            el("div", {class: r.memory.fits ? "fill" : "fill over", css: {width: 100 * share / scale + "%"}}),
            el("div", {class: "limit", css: {left: 100 / scale + "%"}}));
}

// The whole training: how long, how much, and of the GPUs the energy.
function trainingFacts(r, fact) {
  const t = r.training;
  if (!t || r.step_time_s === null) return [];
  const days = t.days >= 2 ? countText(t.days) + " days" : countText(24 * t.days) + " hours";
  return [
    fact("Training", days, `${countText(t.steps)} steps of ${countText(t.tokens ?? t.samples)} ` +
                           (t.tokens === null ? "samples" : "tokens")),
    fact("GPU-hours", countText(t.gpu_hours)),
    t.dollars === null ? null : fact("Cost", "$" + countText(t.dollars), `at $${t.dollars_per_gpu_hour} a GPU-hour`),
    t.energy_kwh === null ? null : fact("Energy", t.energy_kwh >= 1e3 ? countText(t.energy_kwh / 1e3) + " MWh"
                                                                       : countText(t.energy_kwh) + " kWh",
                                        "in the GPUs, analytic"),
  ];
}

// Where ranks do not wait for each other.
function updatesFact(r, fact) {
  const u = r.server_updates;
  if (!u || r.step_time_s === null) return null;
  return fact("Updates/s", countText(u.updates_per_s), `gradients ${u.mean_staleness.toFixed(1)} updates old, ` +
                                                      `${u.most_stale} at most`);
}

// Where batches are prepared by workers.
function inputFact(r, fact) {
  const i = r.input;
  if (!i || r.step_time_s === null) return null;
  const needed = i.keeps_up ? "they keep up"
    : i.workers_needed !== null ? `${i.workers_needed} would keep up` : "more would not keep up";
  return fact("Input", i.workers + (i.workers === 1 ? " worker" : " workers"),
              `a batch every ${timeText(i.batch_every_s)}; ${needed}`);
}

function card(v) {
  const r = v.report;
  const fact = (name, value, note) => el("div", {class: "fact"}, el("dt", {}, name),
                                         el("dd", {}, value, note ? el("small", {}, " " + note) : null));
  const rates = r.step_time_s === null ? [] : [
    r.tokens_per_s !== null ? fact("Tokens/s", countText(r.tokens_per_s),
                                   countText(r.tokens_per_s_per_gpu) + " per " + page.device)
                            : fact("Samples/s", countText(r.samples_per_s)),
    fact("MFU", percent(r.mfu), Math.abs(r.hfu - r.mfu) > 5e-4 ? "HFU " + percent(r.hfu) : ""),
    r.full_square.model_flops > r.model_flops
        ? fact("MFU, full square", r.full_square.mfu === null ? "above the peak" : percent(r.full_square.mfu),
               "as PaLM and Megatron-LM") : null,
  ];
  return el("article", {class: "card" + (v === best && running.length ? " best" : "") +
                               (r.step_time_s === null ? " fails" : "")},
            el("header", {}, el("h3", {}, v.label), badge(v)),
            el("p", {class: "big"}, r.step_time_s === null ? "no step" : timeText(r.step_time_s),
               r.calibrated || r.step_time_s === null ? null : el("small", {class: "uncalibrated"}, " uncalibrated")),
            r.interval ? el("p", {class: "interval quiet"}, likeIt(r)) : null,
            r.reason ? el("p", {class: "reason"}, r.reason) : null,
            el("dl", {}, rates, trainingFacts(r, fact), updatesFact(r, fact), inputFact(r, fact), fact("Idle", percent(r.pipeline.bubble_fraction), "of the compute streams"),
               fact("Memory", bytesText(r.memory.peak_bytes), "of " + bytesText(r.memory.capacity_bytes) +
                              (r.memory.tight ? `, tight: ${bytesText(r.memory.wanted_bytes)} wanted` : ""))),
            memoryBar(r));
}

// What would make a variant fit that does not: the cheapest changes, or what comes closest.
function waysBlock(v) {
  const r = v.report, ways = r.ways_to_fit;
  if (!ways) return null;
  const closest = ways.length || !r.closest_to_fit ? [] : [r.closest_to_fit];
  const signed = (f) => (f >= 0 ? "+" : "\u2212") + percent(Math.abs(f));
  const options = (way) => el("code", {}, way.set.map((s) => "--set " + s).join(" "));
  const rows = [...ways, ...closest].map((way) => [
    el("span", {}, way.text.replaceAll("->", "\u2192"), el("br"), options(way)), bytesText(way.saved_bytes),
    `${bytesText(way.peak_bytes)} of ${bytesText(r.memory.capacity_bytes)}`, timeText(way.step_time_s),
    way.step_time_change === null ? null : signed(way.step_time_change)]);
  const simulated = `${plural(r.ways_simulated, "change")} simulated${r.ways_cut_short ? ", less than could be" : ""}`;
  const lead = ways.length ? `The cheapest of ${simulated}. As it is, a step would take ${timeText(r.simulated_step_s)}.` :
      closest.length ? `Nothing that was tried fits (${simulated}). This comes closest, ` +
          `${bytesText(closest[0].peak_bytes - r.memory.capacity_bytes)} too much:` :
      r.ways_cut_short ? "The step is too large to be simulated again and again." : "There is nothing left to change.";
  return el("div", {class: "panel ways"},
      el("h3", {}, ways.length ? "Ways to fit" : "No way to fit", variants.length > 1 ? `: ${v.label}` : ""),
      el("p", {class: "quiet"}, lead),
      rows.length ? table("", ["Change", "Saves", "Memory", "Step", "Against as it is"], rows) : null);
}

function basisBlock(v) {
  const r = v.report;
  const kinds = Object.entries(r.basis).filter(([, share]) => share > 0);
  const rows = r.sources.map((s) => [s.what, s.basis, s.source, s.machine, s.residual]);
  return el("div", {class: "panel"}, el("h3", {}, "What these numbers rest on"),
      el("p", {class: r.calibrated ? "" : "callout warn"}, r.calibrated ? "" : el("strong", {}, "Uncalibrated. "),
         v.basis.replace(/^uncalibrated: /, "").replace(/^[a-z]/, (first) => first.toUpperCase()) + "."),
      intervalNote(r),
      kinds.length ? el("div", {class: "basis", role: "img", "aria-label": v.basis}, kinds.map(([name, share]) =>
          el("div", {class: "part " + name, css: {flex: String(1000 * share)}, title: name + " " + percent(share)},
             share * 60 > name.length + 4 ? name + " " + percent(share, 0) : ""))) : null,
      extrapolationNote(r),
      el("p", {class: "quiet"}, r.fidelity ? `Communication: ${r.fidelity}. ` : "",
         `${countText(r.engine.events)} events, ${plural(r.engine.ranks, "rank")} in ` +
         `${plural(r.engine.classes, "class")}.`),
      rows.length ? folded(plural(rows.length, "source"),
          table("", ["What", "Basis", "Source", "Machine", "Error of the fit"], rows, {left: 5})) : null);
}

function likeIt(r) {
  const {low_s, high_s} = r.interval;
  const side = low_s > r.step_time_s ? " took longer" : high_s < r.step_time_s ? " were faster" : "";
  return `8 of 10 like it${side}: ${timeText(low_s)} to ${timeText(high_s)}`;
}

// Which published steps the interval is from.
function intervalNote(r) {
  if (!r.interval) return null;
  const range = `${timeText(r.interval.low_s)} to ${timeText(r.interval.high_s)}`;
  return el("p", {class: r.interval.of_this_kind ? "" : "callout warn"}, el("strong", {}, range + ". "),
      r.interval.of_this_kind
          ? `8 of 10 of the ${r.interval.steps} published steps like it were so far off what is predicted for them ` +
            `(${r.interval.of}).`
          : `8 of 10 of all ${r.interval.steps} published steps were so far off what is predicted for them; too few are ` +
            `of ${r.class.network}, so that says little.`);
}

// Published numbers beside predicted ones.
function publishedBlock(v) {
  const list = v.report.published;
  if (!list.length) return null;
  const digits = (x) => x === null ? null : x >= 1e4 ? countText(x) : String(Number(x.toPrecision(4)));
  const off = (p) => p.predicted === null || p.value === 0 ? null
      : (p.predicted >= p.value ? "+" : "\u2212") + percent(Math.abs(p.predicted / p.value - 1));
  return el("div", {class: "panel published"}, el("h3", {}, "Published beside predicted"),
      table("", ["What", "Metric", "Published", "Predicted", "Off by"],
            list.map((p) => [p.label, el("span", {class: "word"}, p.metric), digits(p.value), digits(p.predicted), off(p)]), {left: 2}));
}

// How the profile was fitted and how well it predicts what it was not fitted on.
function calibrationBlock(v) {
  const c = v.report.calibration;
  if (!c) return null;
  const versions = [c.driver ? "driver " + c.driver : "", c.cuda ? "CUDA " + c.cuda : ""].filter(Boolean).join(", ");
  const rows = c.errors.map((e) => [e.what, e.size, countText(e.fitted), countText(e.held_out), countText(e.rejected),
                                    ...[e.mape, e.median, e.worst].map((x) => e.held_out ? percent(x) : "–")]);
  return el("div", {class: "panel", id: "calibration"}, el("h3", {}, "Calibration and validity"),
      el("p", {}, `Measured on ${c.machine}${versions ? " (" + versions + ")" : ""}, ${c.date}; ` +
         `${plural(c.samples, "sample")}, fitted by ${c.program}. Errors are those on samples that the fit did not see.`),
      rows.length ? folded(plural(rows.length, "error") + " by kind and size",
          table("", ["What", "Sizes", "Fitted", "Held out", "Rejected", "Mean error", "Median", "Worst"], rows,
                {left: 2})) : null,
      c.rejected.length ? folded(`Not fitted (${c.rejected.length})`, el("ul", {}, c.rejected.map((r) => el("li", {}, r)))) : null);
}

// What lies beyond what was fitted; parts with the same reason together, the largest first.
function extrapolationNote(r) {
  if (!r.extrapolated.length) return null;
  const reasons = new Map();
  for (const part of r.extrapolated) {
    const same = reasons.get(part.why) || {what: [], share: 0};
    reasons.set(part.why, {what: [...same.what, part.what], share: same.share + part.share});
  }
  const list = [...reasons].sort(([, a], [, b]) => b.share - a.share);
  const share = list.reduce((sum, [, same]) => sum + same.share, 0);
  const names = (what) => what.slice(0, 3).join(", ") + (what.length > 3 ? ` and ${what.length - 3} more` : "");
  return el("div", {class: "callout warn"}, el("strong", {}, percent(share) + " extrapolated. "),
      "Beyond what was fitted:",
      el("ul", {}, list.slice(0, 5).map(([why, same]) =>
          el("li", {}, `${names(same.what)}: ${why} (${percent(same.share)})`)),
         list.length > 5 ? el("li", {}, `and ${plural(list.length - 5, "more reason")}`) : null));
}

function findingList(v) {
  const list = v.report.findings;
  if (!list.length) return el("p", {class: "quiet"}, "No part other than computation reaches half a percent.");
  return el("ol", {class: "findings"}, list.map((f) => {
    const [head, ...rest] = f.text.split(":");
    return el("li", {class: "cat-" + f.category},
              el("span", {class: "share"}, percent(f.share)),
              el("span", {}, el("strong", {}, head), ":" + rest.join(":")));
  }));
}

function drawSummary() {
  const shown = running.length ? best : baseline;
  section("summary", "Summary", verdict(),
      el("p", {class: "sentence"}, shown.report.description ? shown.report.description.replace(/[^.?!]$/, "$&.") + " " : "",
         variants.length > 1 ? el("b", {}, shown.label + ": ") : "", shown.sentence),
      el("div", {class: "cards" + (variants.length === 1 ? " single" : "")}, variants.map(card)),
      variants.map(waysBlock),
      el("div", {class: "two"},
         el("div", {class: "panel"},
            el("h3", {}, variants.length > 1 ? `Largest losses of ${shown.label}` : "Largest losses"),
            findingList(shown),
            variants.length > 1 ? folded("Largest losses of the others",
                ...variants.filter((v) => v !== shown).map((v) =>
                    el("div", {}, el("h4", {}, v.label), findingList(v)))) : null),
         basisBlock(shown)),
      publishedBlock(shown), calibrationBlock(shown));
}
