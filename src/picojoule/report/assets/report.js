// The report: chooses setting, curves and run, and gives their rows to the charts.
"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const store = JSON.parse($("store").textContent);
  const lines = $("details").textContent.split("\n");
  const runs = store.runs.map((values, index) => {
    const run = { index };
    store.columns.forEach((column, i) => { run[column] = values[i]; });
    return run;
  });
  const byName = new Map(runs.map((run) => [run.name, run]));
  const details = (run) => JSON.parse(lines[run.index]); // read when it is asked for: most never are
  const SHOWN = 25;
  const many = store.settings.length > 1;
  let setting = 0;
  let chosen = null;

  // --- Words -------------------------------------------------------------------------------------------------------

  const known = (value) => value !== null && value !== undefined;
  const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits).replace(/^-(?=[0.]+$)/, "").replace("-", "−")} %` : "–");
  const UNITS = [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"], [1e-9, "nJ"], [1e-12, "pJ"]];
  function joules(value) {
    if (!known(value)) return "not priced";
    if (value === 0) return "0 J";
    const rounded = Number(value.toPrecision(3)); // first the digits, then the unit: 999.6 nJ are 1.00 µJ
    const [scale, unit] = UNITS.find(([least]) => rounded >= least) ?? UNITS.at(-1);
    return `${(value / scale).toPrecision(3)} ${unit}`;
  }
  const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  const plain = (run) => run.strength === 0 && !run.budget;
  const amount = (run) => run.budget || (run.strength ?? "–");
  const penalty = (run) => (plain(run) ? "none" : known(run.kind) ? `${run.kind} (${run.variant})` : "–");
  function title(run) {
    if (!known(run.kind)) return "A run that cannot be read";
    const level = plain(run) ? "Baseline, without penalty" : `${penalty(run)}, ${run.budget || `λ' = ${run.strength}`}`;
    return `${level}, seed ${run.seed}`;
  }
  function element(tag, text = "", name = "") {
    const made = document.createElement(tag);
    made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  // --- Trade-off ---------------------------------------------------------------------------------------------------

  const curveRow = (run) => ({
    run: run.name,
    kind: plain(run) ? "baseline" : run.kind,
    variant: plain(run) ? "" : run.variant,
    strength: String(amount(run)),
    rank: run.rank,
    seed: String(run.seed),
    energy: run.energy,
    accuracy: run.accuracy,
  });

  // The mark and the dashes of a variant, as the chart draws them.
  const FORMS = {
    circle: "M9 6a3 3 0 1 0 6 0a3 3 0 1 0-6 0", "triangle-up": "M12 2l4 7h-8z", "triangle-down": "M12 10l4-7h-8z",
    square: "M9 3h6v6h-6z", diamond: "M12 2l3 4l-3 4l-3-4z", cross: "M11 2h2v3h3v2h-3v3h-2v-3h-3v-2h3z",
  };
  function sample([form, dashes]) {
    const draw = (tag, attributes) => {
      const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
      return made;
    };
    const picture = draw("svg", { viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" });
    picture.append(
      draw("path", { d: "M0 6h24", stroke: "currentColor", "stroke-width": 1.5, "stroke-dasharray": dashes.join(" ") }),
      draw("path", { d: FORMS[form], fill: "currentColor" }),
    );
    return picture;
  }
  function swatch(colour) {
    const made = element("span", "", "swatch");
    made.style.setProperty("--colour", colour);
    return made;
  }

  function switches(id, title, values, picture) {
    const field = $(id);
    field.replaceChildren(element("legend", title));
    for (const value of values) {
      const label = element("label", "", "switch");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.value = value;
      box.addEventListener("change", () => { picojoule.set("tradeoff", { [id]: shown(id) }); tellHidden(); });
      label.append(box, ...(picture ? [picture(value)] : []), element("span", value));
      field.append(label);
    }
    field.hidden = values.length === 0;
  }
  const shown = (id) => [...$(id).querySelectorAll("input:checked")].map((box) => box.value);
  const curveRows = () => runs.filter((run) => run.setting === setting && run.on_curve).map(curveRow);

  function tellHidden() {
    const [kinds, variants, seeds] = ["kinds", "variants", "seeds"].map(shown);
    const left = curveRows().filter((row) => seeds.includes(row.seed) && kinds.includes(row.kind) && variants.includes(row.variant));
    const below = left.filter((row) => row.accuracy < Number($("lowest").value)).length;
    $("hidden").textContent = !left.length
      ? "All curves are switched off: switch on a penalty, a power and a seed."
      : below ? `${count(below, "run")} of ${left.length} below the accuracy axis: choose “all of it” to see ${below === 1 ? "it" : "them"}.` : "";
  }

  // The axis begins at a half where only networks that have broken down are below it, and the baseline is well above.
  function beginning(rows, options) {
    const plainOnes = rows.filter((row) => row.kind === "baseline").map((row) => row.accuracy);
    const mean = plainOnes.reduce((a, b) => a + b, 0) / plainOnes.length;
    return options.includes(0.5) && mean > 0.6 ? 0.5 : 0;
  }

  const AMOUNTS = { "data.limit": "training images", "training.epochs": "epochs" };
  function about({ label, recipe }) {
    const keys = ["model.name", "data.name", "data.limit", "training.epochs", "optimizer.name", "energy.hardware"];
    const parts = keys.filter((key) => key in recipe).map((key) => (key in AMOUNTS ? `${recipe[key]} ${AMOUNTS[key]}` : String(recipe[key])));
    const said = many ? label.split(" · ") : []; // where a setting is chosen
    return [...parts, `ψ ${recipe["energy.psi"]}`].filter((part) => !said.includes(part)).join(" · ");
  }

  async function chooseSetting(index) {
    setting = index;
    const { curves, note, run, extent } = store.settings[index];
    const rows = curveRows();
    const distinct = (values) => [...new Set(values)];
    const seeds = distinct(rows.map((row) => row.seed)).sort((a, b) => a - b);
    switches("kinds", "Penalty", distinct(curves.map(([kind]) => kind)), (kind) => swatch(store.colours[kind]));
    switches("variants", "Power", distinct(curves.map(([, variant]) => variant)), (variant) => sample(store.looks[variant]));
    switches("seeds", "Seed", seeds);
    $("curves").hidden = curves.length === 0;
    $("about").textContent = about(store.settings[index]);
    $("setting-note").textContent = note;
    $("setting-note").hidden = !note;
    document.querySelectorAll("[data-setting]").forEach((part) => { part.hidden = Number(part.dataset.setting) !== index; });
    const [lowest, highest, furthest] = extent;
    const options = [0, 0.5, 0.6, 0.7, 0.8, 0.9].filter((value) => value === 0 || (value > lowest && value < highest - 0.02));
    $("lowest").replaceChildren(...options.map((value) => new Option(value ? `from ${100 * value} %` : "all of it", value || lowest)));
    $("lowest").value = beginning(rows, options) || lowest;
    const parameters = { kinds: shown("kinds"), variants: shown("variants"), seeds, lowest: Number($("lowest").value), highest, furthest };
    const drawn = curves.length ? picojoule.put("tradeoff", { rows, parameters }) : null;
    tellHidden();
    await Promise.all([drawn, known(run) ? chooseRun(runs[run]) : null]);
  }

  // --- One run -----------------------------------------------------------------------------------------------------

  function layerRows(network, set, values) {
    return store.layers[set].map(([layer], i) => ({ network, layer, energy: values.joules[i] * 1e6, rate: values.rate[i] }));
  }

  function meanOf(group) {
    const all = group.map((run) => details(run).layers);
    const mean = (key) => all[0][key].map((_, i) => {
      const values = all.map((layers) => layers[key][i]).filter(known);
      return values.length ? values.reduce((a, b) => a + b) / values.length : null;
    });
    return { joules: mean("joules"), rate: mean("rate") };
  }

  function saved(run, layers, before) {
    const less = before.joules.map((value, i) => value - layers.joules[i]);
    const total = less.reduce((a, b) => a + b, 0);
    if (total <= 0) return "";
    const parts = store.layers[run.layers].map(([name], i) => [name, less[i] / total]).sort(([, a], [, b]) => b - a);
    const told = parts.filter(([, share]) => share >= 0.01);
    const rest = parts.length - told.length;
    const left = 1 - told.reduce((sum, [, share]) => sum + share, 0);
    const spent = left < -0.005 ? " (more is spent there)" : "";
    const others = rest ? [`the other ${rest === 1 ? "layer" : `${rest} layers`} ${percent(left, 0)}${spent}`] : [];
    return `${joules(total)} saved per image: ${[...told.map(([name, share]) => `${name} ${percent(share, 0)}`), ...others].join(", ")}.`;
  }

  function measuredShares(run) {
    const { layers } = details(run);
    const neurons = store.layers[run.layers].map(([, count]) => count);
    const spikes = layers.rate.map((rate) => rate ?? 0);
    return {
      energy: layers.joules,
      "Ω_syn": layers.synops,
      "Ω_total": spikes.map((rate, i) => rate * neurons[i]),
      "Ω_balance": spikes,
    };
  }

  function shareRows(names, terms) {
    return Object.entries(terms).flatMap(([term, values]) => {
      const total = values.reduce((a, b) => a + b, 0);
      return names.map((layer, i) => ({ layer, term, share: total ? values[i] / total : 0 }));
    });
  }

  function drawShares() {
    const whole = store.settings[chosen.setting]?.shares;
    const at = $("firing").value;
    $("firing-all").disabled = !whole;
    if (at === "all" && whole) return picojoule.put("shares", { rows: shareRows(whole.layers, whole.terms) });
    $("firing").value = "run";
    return picojoule.put("shares", { rows: shareRows(store.layers[chosen.layers].map(([name]) => name), measuredShares(chosen)) });
  }

  function trainingRows(training, series) {
    return Object.entries(series).flatMap(([name, key]) =>
      (training[key] ?? []).map((value, i) => ({ epoch: training.epoch[i], series: name, value })).filter((row) => known(row.value)));
  }

  // As TOML: what is shown can be copied into a file and trained.
  function recipeParts(run) {
    const sections = new Map();
    for (const [key, value] of Object.entries({ ...store.settings[run.setting].recipe, ...details(run).free })) {
      const [section, name] = key.includes(".") ? key.split(/\.(.*)/s) : ["", key];
      const lines = sections.get(section) ?? (section ? [`[${section}]`] : []);
      sections.set(section, [...lines, `${name} = ${JSON.stringify(value)}`]);
    }
    const order = [...sections].sort(([a], [b]) => (a !== "") - (b !== ""));
    return order.map(([, lines]) => element("pre", `${lines.join("\n")}\n`));
  }

  function factsOf(run, training) {
    const last = (key) => training?.[key]?.findLast(known);
    const seen = run.state === "finished" || !training
      ? { accuracy: percent(run.accuracy), "energy per image": known(run.accuracy) ? joules(run.joules) : "–", "of the baseline": percent(run.energy, 1) }
      : { "accuracy so far (validation)": percent(last("validation_accuracy")), "energy so far": known(last("joules")) ? joules(last("joules")) : "–" };
    return {
      penalty: penalty(run), "λ' or budget": amount(run), seed: run.seed ?? "–", ...seen,
      ...(known(run.rate) ? { "mean firing rate": percent(run.rate) } : {}), ...(known(run.dead) ? { "dead neurons": percent(run.dead) } : {}),
    };
  }

  async function chooseRun(run) {
    chosen = run;
    const { layers, training, reason } = details(run);
    $("run-title").textContent = title(run);
    $("run-name").textContent = run.name;
    $("run-state").textContent = reason ? `${run.state}: ${reason}` : run.state;
    $("run-state").className = `state-${run.state}`;
    $("run-facts").hidden = run.setting === null;
    $("run-facts").replaceChildren(...Object.entries(factsOf(run, training)).map(([name, value]) => {
      const fact = document.createElement("div");
      fact.append(element("dt", name), element("dd", value));
      return fact;
    }));
    $("run-recipe").replaceChildren(...(run.setting === null ? [element("p", "The recipe cannot be read.")] : recipeParts(run)));
    mark();
    const onCurve = run.on_curve && run.setting === setting && store.settings[setting].curves.length > 0;
    $("pointer").hidden = !onCurve;
    $("pointer-name").textContent = onCurve ? `${title(run)}: ${percent(run.accuracy, 1)} accurate at ${percent(run.energy, 1)} of the energy;` : "";
    const drawings = [onCurve ? picojoule.set("tradeoff", { chosen: run.name }) : null];
    const blanks = [];
    $("run-layers").hidden = !layers;
    if (!layers) blanks.push(run.state === "finished" ? "It has no spiking layers to draw." : "Its layers are measured when it is finished.");
    if (layers) {
      const baseline = runs.filter((r) => r.setting === run.setting && plain(r) && r.on_curve && r.layers === run.layers);
      const before = baseline.length && !plain(run) ? meanOf(baseline) : null;
      $("run-saved").textContent = before ? saved(run, layers, before) : "";
      const rows = [
        ...(before ? layerRows("baseline", run.layers, before) : []),
        ...layerRows("this run", run.layers, layers),
      ];
      drawings.push(picojoule.put("layer-energy", { rows }), picojoule.put("layer-rate", { rows }), drawShares());
    }
    $("run-training").hidden = !training;
    if (!training) blanks.push("No epoch of it is on record.");
    if (training) {
      const micro = (values) => values.map((value) => (known(value) ? value * 1e6 : null));
      const scaled = { ...training, microjoules: micro(training.joules), wanted: micro(training.target_joules) };
      const series = {
        loss: { training: "train_loss", validation: "validation_loss" },
        accuracy: { training: "train_accuracy", validation: "validation_accuracy" },
        energy: { validation: "microjoules", "wanted by the budget": "wanted" },
        strength: plain(run) ? {} : { strength: "strength" },
      };
      for (const [name, keys] of Object.entries(series)) {
        const rows = trainingRows(scaled, keys);
        $(`training-${name}`).parentElement.hidden = rows.length === 0;
        if (rows.length) drawings.push(picojoule.put(`training-${name}`, { rows }));
      }
    }
    $("run-blank").textContent = blanks.join(" ");
    $("run-blank").hidden = !blanks.length;
    await Promise.all(drawings);
  }

  function mark() {
    for (const row of $("runs").querySelectorAll("tbody tr")) {
      const here = chosen !== null && Number(row.dataset.index) === chosen.index;
      row.classList.toggle("chosen", here);
      if (here) row.setAttribute("aria-current", "true"); else row.removeAttribute("aria-current");
    }
    document.querySelectorAll(".tile").forEach((tile) => tile.setAttribute("aria-pressed", String(Number(tile.dataset.run) === chosen?.index)));
  }

  // --- All runs ----------------------------------------------------------------------------------------------------

  const COLUMNS = [
    ["state", "state", (run) => run.state, "word"],
    ["penalty", "kind", penalty, "word"],
    ["λ' or budget", "rank", amount, ""],
    ["seed", "seed", (run) => run.seed ?? "–", ""],
    ["accuracy", "accuracy", (run) => percent(run.accuracy), ""],
    ["energy", "joules", (run) => (known(run.accuracy) ? joules(run.joules) : "–"), ""],
    ["of the baseline", "energy", (run) => percent(run.energy, 1), ""],
    ["run", "name", (run) => run.name, "word long"],
    ...(many ? [["setting", "setting", (run) => store.settings[run.setting]?.label ?? "–", "word long"]] : []),
    ...(runs.some((run) => run.reason) ? [["remark", "reason", (run) => run.reason, "word long"]] : []),
  ];
  let order = { key: "name", down: false };
  let all = false;

  function listRuns() {
    const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const state = $("state").value;
    const compare = (a, b) => {
      const [x, y] = [a[order.key], b[order.key]];
      if (!known(x) || !known(y)) return known(y) - known(x);
      return (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) * (order.down ? -1 : 1);
    };
    const wanted = runs.filter((run) => (!state || run.state === state) && words.every((word) => `${run.name} ${penalty(run)}`.toLowerCase().includes(word))).sort(compare);
    const rows = (all ? wanted : wanted.slice(0, SHOWN)).map((run) => {
      const row = document.createElement("tr");
      row.dataset.index = run.index;
      for (const [title, , show, kind] of COLUMNS) {
        const cell = element("td", title === "run" ? "" : show(run), kind);
        if (title === "state") cell.classList.add(`state-${run.state}`);
        if (title === "run") cell.append(button(show(run)));
        row.append(cell);
      }
      return row;
    });
    $("runs").querySelector("tbody").replaceChildren(...rows);
    mark();
    $("none").textContent = wanted.length ? "" : "No run is like that: search for less, or choose another state.";
    $("more").hidden = rows.length === wanted.length;
    $("more").textContent = `show all ${wanted.length}`;
  }

  function button(text) {
    const made = element("button", text);
    made.type = "button";
    return made;
  }

  function heads() {
    $("runs").querySelector("thead tr").replaceChildren(...COLUMNS.map(([title, key, , kind]) => {
      const head = element("th", "", kind);
      const here = order.key === key;
      head.scope = "col";
      if (here) head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      const sort = button(here ? `${title} ${order.down ? "↓" : "↑"}` : title);
      sort.addEventListener("click", () => {
        order = { key, down: order.key === key && !order.down };
        heads();
        listRuns();
        $("runs").querySelector("th[aria-sort] button").focus();
      });
      head.append(sort);
      return head;
    }));
  }

  function toRun() {
    const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    $("one-run").scrollIntoView({ behavior: still ? "auto" : "smooth" });
    $("one-run-title").focus({ preventScroll: true });
  }

  function fromList(event) {
    const row = event.target.closest("tr[data-index]");
    if (!row) return;
    chooseRun(runs[Number(row.dataset.index)]);
    toRun();
  }

  // --- Beginning ---------------------------------------------------------------------------------------------------

  $("setting").replaceChildren(...store.settings.map(({ label }, index) => new Option(label, index)));
  $("setting-field").hidden = !many;
  $("setting").addEventListener("change", (event) => chooseSetting(Number(event.target.value)));
  $("lowest").addEventListener("change", (event) => { picojoule.set("tradeoff", { lowest: Number(event.target.value) }); tellHidden(); });
  $("to-run").addEventListener("click", toRun);
  document.querySelectorAll(".tile").forEach((tile) => tile.addEventListener("click", () => chooseRun(runs[Number(tile.dataset.run)])));
  $("firing").addEventListener("change", drawShares);
  $("search").addEventListener("input", listRuns);
  $("state").addEventListener("change", listRuns);
  $("more").addEventListener("click", () => { all = true; listRuns(); });
  $("runs").addEventListener("click", fromList);
  document.addEventListener("run", (event) => { if (byName.has(event.detail)) chooseRun(byName.get(event.detail)); });
  heads();
  listRuns();
  const drawn = store.settings.length ? chooseSetting(0) : Promise.resolve();
  drawn.then(() => { document.documentElement.dataset.ready = "yes"; });
})();
