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
  let setting = 0;
  let chosen = null;

  // --- Words -------------------------------------------------------------------------------------------------------

  const known = (value) => value !== null && value !== undefined;
  const percent = (value, digits = 2) => (known(value) ? `${(100 * value).toFixed(digits)} %` : "–");
  const UNITS = [[1, "J"], [1e-3, "mJ"], [1e-6, "µJ"], [1e-9, "nJ"], [1e-12, "pJ"]];
  function joules(value) {
    if (!known(value)) return "not priced";
    if (value === 0) return "0 J";
    const [scale, unit] = UNITS.find(([least]) => value >= least) ?? UNITS.at(-1);
    return `${Number((value / scale).toPrecision(3))} ${unit}`;
  }
  const plain = (run) => run.strength === 0 && !run.budget;
  const amount = (run) => run.budget || (run.strength ?? "–");
  const penalty = (run) => (plain(run) ? "none" : known(run.kind) ? `${run.kind} (${run.variant})` : "–");
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

  function switches(id, title, values, colours) {
    const field = $(id);
    field.replaceChildren(element("legend", title));
    for (const value of values) {
      const label = element("label", "", "switch");
      const box = document.createElement("input");
      box.type = "checkbox";
      box.checked = true;
      box.value = value;
      box.addEventListener("change", () => picojoule.set("tradeoff", { [id]: shown(id) }));
      label.append(box);
      if (colours) {
        const swatch = element("span", "", "swatch");
        swatch.style.setProperty("--colour", colours[value]);
        label.append(swatch);
      }
      label.append(element("span", value));
      field.append(label);
    }
    field.hidden = values.length === 0;
  }
  const shown = (id) => [...$(id).querySelectorAll("input:checked")].map((box) => box.value);

  async function chooseSetting(index) {
    setting = index;
    const { curves, note, run } = store.settings[index];
    const rows = runs.filter((r) => r.setting === index && r.on_curve).map(curveRow);
    const distinct = (values) => [...new Set(values)];
    const seeds = distinct(rows.map((row) => row.seed)).sort((a, b) => a - b);
    switches("kinds", "Penalty", distinct(curves.map(([kind]) => kind)), store.colours);
    switches("variants", "Power", distinct(curves.map(([, variant]) => variant)));
    switches("seeds", "Seed", seeds);
    $("curves").hidden = rows.length === 0;
    $("setting-note").textContent = note;
    $("setting-note").hidden = !note;
    document.querySelectorAll("[data-setting]").forEach((part) => { part.hidden = Number(part.dataset.setting) !== index; });
    const lowest = Math.floor(10 * Math.min(1, ...rows.map((row) => row.accuracy))) / 10;
    const options = [0, 0.5, 0.6, 0.7, 0.8, 0.9].filter((value) => value > lowest || value === 0);
    $("lowest").replaceChildren(...options.map((value) => new Option(value ? `from ${100 * value} %` : "all of it", value || lowest)));
    const furthest = 1.04 * Math.max(1, ...rows.map((row) => row.energy));
    const parameters = { kinds: shown("kinds"), variants: shown("variants"), seeds, lowest, furthest };
    const drawn = rows.length ? picojoule.put("tradeoff", { rows, parameters }) : null;
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
    const parts = store.layers[run.layers].map(([name], i) => [name, less[i]]).sort(([, a], [, b]) => b - a);
    return `${joules(total)} saved an image: ${parts.map(([name, value]) => `${name} ${percent(value / total, 0)}`).join(", ")}.`;
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

  function recipeText(run) {
    if (run.setting === null) return "The recipe cannot be read.";
    const flat = { ...store.settings[run.setting].recipe, ...details(run).free };
    return Object.entries(flat).sort(([a], [b]) => a.includes(".") - b.includes(".")).map(([key, value]) => `${key} = ${JSON.stringify(value)}`).join("\n");
  }

  async function chooseRun(run) {
    chosen = run;
    const { layers, training, reason } = details(run);
    $("run-name").textContent = run.name;
    $("run-state").textContent = reason ? `${run.state}: ${reason}` : run.state;
    $("run-state").className = `state-${run.state}`;
    const facts = {
      penalty: penalty(run), "λ' or budget": amount(run), seed: run.seed ?? "–", accuracy: percent(run.accuracy),
      "energy per image": known(run.accuracy) ? joules(run.joules) : "–", "of the baseline": percent(run.energy, 1),
      "mean firing rate": percent(run.rate), "dead neurons": percent(run.dead),
    };
    $("run-facts").replaceChildren(...Object.entries(facts).map(([name, value]) => {
      const fact = document.createElement("div");
      fact.append(element("dt", name), element("dd", value));
      return fact;
    }));
    $("run-recipe").textContent = recipeText(run);
    $("runs").querySelectorAll("tr.chosen").forEach((row) => row.classList.remove("chosen"));
    $("runs").querySelector(`tr[data-index="${run.index}"]`)?.classList.add("chosen");
    const drawings = [];
    $("run-layers").hidden = !layers;
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
    if (training) {
      const micro = (values) => values.map((value) => (known(value) ? value * 1e6 : null));
      const scaled = { ...training, microjoules: micro(training.joules), wanted: micro(training.target_joules) };
      drawings.push(
        picojoule.put("training-loss", { rows: trainingRows(scaled, { training: "train_loss", validation: "validation_loss" }) }),
        picojoule.put("training-accuracy", { rows: trainingRows(scaled, { training: "train_accuracy", validation: "validation_accuracy" }) }),
        picojoule.put("training-energy", { rows: trainingRows(scaled, { validation: "microjoules", "wanted by the budget": "wanted" }) }),
      );
      const strength = trainingRows(scaled, { strength: "strength" });
      $("training-strength").parentElement.hidden = strength.length === 0;
      if (strength.length) drawings.push(picojoule.put("training-strength", { rows: strength }));
    }
    await Promise.all(drawings);
  }

  // --- All runs ----------------------------------------------------------------------------------------------------

  const many = store.settings.length > 1;
  const COLUMNS = [
    ["state", "state", (run) => run.state, true],
    ["run", "name", (run) => run.name, true],
    ...(many ? [["setting", "setting", (run) => store.settings[run.setting]?.label ?? "–", true]] : []),
    ["penalty", "kind", penalty, true],
    ["λ' or budget", "rank", amount],
    ["seed", "seed", (run) => run.seed ?? "–"],
    ["accuracy", "accuracy", (run) => percent(run.accuracy)],
    ["energy", "joules", (run) => (known(run.accuracy) ? joules(run.joules) : "–")],
    ["relative", "energy", (run) => percent(run.energy, 1)],
    ["remark", "reason", (run) => run.reason, true],
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
    const wanted = runs.filter((run) => (!state || run.state === state) && words.every((word) => run.name.toLowerCase().includes(word))).sort(compare);
    const rows = (all ? wanted : wanted.slice(0, SHOWN)).map((run) => {
      const row = document.createElement("tr");
      row.dataset.index = run.index;
      row.tabIndex = 0;
      if (run === chosen) row.className = "chosen";
      for (const [title, , show, word] of COLUMNS) {
        const cell = element("td", show(run), word ? "word" : "");
        if (title === "state") cell.classList.add(`state-${run.state}`);
        if (title === "remark") cell.classList.add("reason");
        row.append(cell);
      }
      return row;
    });
    $("runs").querySelector("tbody").replaceChildren(...rows);
    $("more").hidden = rows.length === wanted.length;
    $("more").textContent = `show all ${wanted.length}`;
  }

  function heads() {
    $("runs").querySelector("thead tr").replaceChildren(...COLUMNS.map(([title, key, , word]) => {
      const head = element("th", "", word ? "word" : "");
      const button = element("button", order.key === key ? `${title} ${order.down ? "↓" : "↑"}` : title);
      button.addEventListener("click", () => { order = { key, down: order.key === key && !order.down }; heads(); listRuns(); });
      head.append(button);
      return head;
    }));
  }

  function fromList(event) {
    const row = event.target.closest("tr[data-index]");
    if (!row || (event.type === "keydown" && event.key !== "Enter")) return;
    chooseRun(runs[Number(row.dataset.index)]);
    $("one-run").scrollIntoView({ behavior: "smooth" });
  }

  // --- Beginning ---------------------------------------------------------------------------------------------------

  $("setting").replaceChildren(...store.settings.map(({ label }, index) => new Option(label, index)));
  $("setting-field").hidden = !many;
  $("setting").addEventListener("change", (event) => chooseSetting(Number(event.target.value)));
  $("lowest").addEventListener("change", (event) => picojoule.set("tradeoff", { lowest: Number(event.target.value) }));
  $("firing").addEventListener("change", drawShares);
  $("search").addEventListener("input", listRuns);
  $("state").addEventListener("change", listRuns);
  $("more").addEventListener("click", () => { all = true; listRuns(); });
  $("runs").addEventListener("click", fromList);
  $("runs").addEventListener("keydown", fromList);
  document.addEventListener("run", (event) => { if (byName.has(event.detail)) chooseRun(byName.get(event.detail)); });
  heads();
  listRuns();
  const drawn = store.settings.length ? chooseSetting(0) : Promise.resolve();
  drawn.then(() => { document.documentElement.dataset.ready = "yes"; });
})();
