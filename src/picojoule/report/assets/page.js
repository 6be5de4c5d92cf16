// Draws every chart of the page: each <div class="chart" id="x"> has its description in charts[x].
"use strict";
const picojoule = (() => {
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const state = {}; // by chart: the rows and parameters that were put in after it was drawn
  const views = {};

  function look() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const text = { labelColor: colour("--ink"), titleColor: colour("--ink"), titleFontWeight: 500 };
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      view: { stroke: null },
      axis: { ...text, gridColor: colour("--line"), domainColor: colour("--line"), tickColor: colour("--line"), labelFontSize: 12, titleFontSize: 12 },
      legend: { ...text, labelFontSize: 12, titleFontSize: 12 },
    };
  }

  function filled(id) {
    const { rows, parameters = {} } = state[id] ?? {};
    const spec = structuredClone(specs[id]);
    if (rows) for (const name of Object.keys(spec.datasets)) spec.datasets[name] = rows;
    if (rows) trim(spec.encoding?.color, rows);
    for (const parameter of spec.params ?? []) {
      if (parameter.name in parameters) parameter.value = parameters[parameter.name];
    }
    return spec;
  }

  // A legend names what is drawn; where that is a single thing, the title above the chart says it already.
  function trim(colour, rows) {
    if (!colour?.legend || !colour.scale?.domain) return;
    const there = new Set(rows.map((row) => row[colour.field]));
    const values = colour.scale.domain.filter((value) => there.has(value));
    colour.legend = values.length > 1 ? { ...colour.legend, values } : null;
  }

  // One drawing of a chart at a time: a later one waits, and only the last that was asked for is made.
  const busy = {};
  const again = {};
  async function draw(id) {
    if (busy[id]) { again[id] = true; return busy[id]; }
    busy[id] = (async () => {
      do {
        again[id] = false;
        const element = document.getElementById(id);
        const result = await vegaEmbed(element, filled(id), {
          actions: { export: true, source: false, compiled: false, editor: false },
          config: look(),
          renderer: "svg",
          downloadFileName: id,
          tooltip: { theme: dark.matches ? "dark" : "light" },
        });
        views[id]?.finalize();
        views[id] = result.view;
        result.view.addEventListener("click", (event, item) => {
          if (item?.datum?.run !== undefined) document.dispatchEvent(new CustomEvent("run", { detail: item.datum.run }));
        });
      } while (again[id]);
      delete busy[id];
    })();
    return busy[id];
  }

  async function put(id, change) {
    const known = (state[id] ??= {});
    if (change.rows) known.rows = change.rows;
    known.parameters = { ...known.parameters, ...change.parameters };
    if (change.spec) Object.assign(specs[id], change.spec);
    return draw(id);
  }

  async function set(id, parameters) {
    const known = (state[id] ??= {});
    known.parameters = { ...known.parameters, ...parameters };
    if (busy[id]) return put(id, {});
    for (const [name, value] of Object.entries(parameters)) views[id].signal(name, value);
    return views[id].runAsync();
  }

  const all = () => Promise.all(Object.keys(specs).filter((id) => document.getElementById(id)).map(draw));
  dark.addEventListener("change", () => Object.keys(views).forEach(draw));
  return { put, set, all, views };
})();
