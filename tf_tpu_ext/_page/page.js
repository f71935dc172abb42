// Draws the charts of the page and sorts its tables. The tables hold all facts without it.
"use strict";

(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const root = document.documentElement;
  root.classList.add("scripted");

  const width = (element) => Math.max(320, Math.min(1180, element.clientWidth));

  // Charts that are drawn again when the window changes.
  const drawers = [];
  function chart(id, rows, draw) {
    const element = document.getElementById(id);
    if (!element || !rows || rows.length === 0) return;
    const name = element.closest("figure").querySelector("figcaption").textContent;
    const redraw = () => {
      element.replaceChildren(draw(width(element)));
      const drawings = [...element.querySelectorAll("svg")];
      // The last is the chart, and those before it the colors of its legend. The table has the facts.
      for (const drawing of drawings.slice(0, -1)) drawing.setAttribute("aria-hidden", true);
      drawings.at(-1).setAttribute("role", "img");
      drawings.at(-1).setAttribute("aria-label", `Chart: ${name}. The table below has the same.`);
    };
    drawers.push(redraw);
    redraw();
  }

  function stacked(rows, { label, y, x, colors, unit }) {
    const longest = d3.max(rows, (row) => String(row[y]).length);
    return (width) =>
      Plot.plot({
        width,
        marginLeft: Math.min(260, 30 + 7 * longest),
        marginBottom: 45,
        style: { fontSize: "13px" },
        x: { label, labelOffset: 40, grid: true, tickFormat: unit, ticks: width / 110 },
        y: { label: null, tickFormat: (name) => (name.length > 34 ? name.slice(0, 33) + "…" : name) },
        color: { domain: Object.keys(colors), range: Object.values(colors), legend: true },
        marks: [
          Plot.barX(rows, {
            x,
            y,
            fill: "part",
            sort: { y: null },
            tip: { fill: "var(--page)", format: { x: unit } },
          }),
          Plot.ruleX([0]),
        ],
      });
  }

  const seconds = (value) => (value >= 1 || value === 0 ? `${d3.format(".3~g")(value)} s` : `${d3.format(".3~g")(value * 1e3)} ms`);
  const bytes = (value) => `${d3.format(".3~s")(value)}B`;

  chart("compilations-chart", facts.compilations, stacked(facts.compilations, {
    label: "time", y: "program", x: "seconds", unit: seconds,
    colors: { "graph to XLA": "var(--run)", "XLA to code": "var(--compile)" },
  }));
  chart("memory-chart", facts.memory, stacked(facts.memory, {
    label: "bytes", y: "program", x: "bytes", unit: bytes,
    colors: { arguments: "var(--run)", results: "var(--update)", temporaries: "var(--compile)" },
  }));
  chart("target-chart", facts.target, stacked(facts.target, {
    label: "percent of a core's memory", y: "program", x: "percent", unit: (value) => `${d3.format(".3~g")(value)} %`,
    colors: { arguments: "var(--run)", results: "var(--update)", temporaries: "var(--compile)", code: "var(--wait)" },
  }));
  chart("padding-chart", facts.padding, (width) =>
    Plot.plot({
      width,
      marginLeft: 160,
      marginBottom: 45,
      style: { fontSize: "13px" },
      x: { label: "% padding", labelOffset: 40, domain: [0, 100], grid: true },
      y: { label: null },
      marks: [Plot.barX(facts.padding, { x: "waste", y: "input", fill: "var(--wait)", tip: { fill: "var(--page)" } }), Plot.ruleX([0])],
    }));
  chart("collectives-chart", facts.collectives, (width) =>
    Plot.plot({
      width,
      marginLeft: 25 + 7 * d3.max(facts.collectives, (row) => row.core.length),
      marginBottom: 45,
      style: { fontSize: "13px" },
      x: { label: "milliseconds", labelOffset: 40, grid: true },
      y: { label: null, axis: null },
      fy: { label: null, domain: [...new Set(facts.collectives.map((row) => row.core))] },
      color: { domain: ["waited", "was waited for"], range: ["var(--wait)", "var(--run)"], legend: true },
      marks: [Plot.barX(facts.collectives, { x: "milliseconds", y: "part", fy: "core", fill: "part", tip: { fill: "var(--page)" } }), Plot.ruleX([0])],
    }));

  timeline(facts.timeline);

  function timeline({ bars, steps, lanes }) {
    const element = document.getElementById("timeline-chart");
    if (!element || bars.length === 0) return;
    const picked = document.getElementById("timeline-picked");
    const select = document.getElementById("step");
    const whole = [Math.min(...bars.map((bar) => bar.x1)), Math.max(...bars.map((bar) => bar.x2))];
    const shortest = 1e-3;
    let shown = [...whole];
    let chosen = null;

    for (const step of steps) {
      const option = new Option(`${step.number} ${step.name} (${(step.x2 - step.x1).toPrecision(3)} ms)`, step.number);
      select.append(option);
    }

    function draw() {
      const span = shown[1] - shown[0];
      // What is seen, at least a pixel wide.
      const least = span / width(element);
      const seen = bars.filter((bar) => bar.x2 >= shown[0] && bar.x1 <= shown[1]);
      const drawn = seen.map((bar) => ({
        ...bar,
        bar,
        from: Math.max(bar.x1, shown[0]),
        to: Math.min(Math.max(bar.x2, bar.x1 + least), shown[1]),
      }));
      const marks = ["compile", "run", "update", "wait"].map((kind) =>
        Plot.rect(drawn.filter((row) => row.kind === kind), {
          x1: "from",
          x2: "to",
          y: "lane",
          fill: `var(--${kind})`,
          insetTop: kind === "wait" ? 8 : 3,
          insetBottom: kind === "wait" ? 8 : 3,
          ariaLabel: "label",
          className: `bars-${kind}`,
        }));
      const plot = Plot.plot({
        width: width(element),
        height: 75 + 30 * lanes.length,
        marginLeft: 25 + 7 * d3.max(lanes, (lane) => lane.length),
        marginBottom: 45,
        style: { fontSize: "13px" },
        x: { domain: shown, label: "milliseconds since the first compilation →", labelOffset: 40, grid: true },
        y: { domain: lanes, label: null, type: "band" },
        marks: [...marks, Plot.axisX({ anchor: "bottom" })],
      });
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", `${seen.length} of ${bars.length} bars, from ${shown[0].toPrecision(4)} to ${shown[1].toPrecision(4)} ms`);
      for (const kind of ["compile", "run", "update", "wait"]) {
        const rows = drawn.filter((row) => row.kind === kind);
        for (const rect of plot.querySelectorAll(`g.bars-${kind} rect, g[class~="bars-${kind}"] rect`)) {
          const row = rows[rect.__data__];
          if (!row) continue;
          rect.dataset.bar = row.label;
          rect.classList.toggle("picked", row.bar === chosen);
          rect.addEventListener("click", () => pick(row.bar));
        }
      }
      element.replaceChildren(plot);
      for (const [move, useless] of [["all", shown[0] === whole[0] && shown[1] === whole[1]], ["left", shown[0] <= whole[0]], ["right", shown[1] >= whole[1]]]) {
        document.querySelector(`[data-move="${move}"]`).setAttribute("aria-disabled", useless);
      }
    }

    const names = { compile: "Compiling", run: "Running", wait: "Waiting", update: "Ending" };
    function pick(bar) {
      chosen = bar;
      picked.textContent = `${names[bar.kind]}, ${bar.lane}: ${bar.label}. From ${bar.x1.toFixed(3)} to ${bar.x2.toFixed(3)} ms, ${(bar.x2 - bar.x1).toPrecision(3)} ms.`;
      draw();
    }

    function show(from, to) {
      const span = Math.min(Math.max(to - from, shortest), whole[1] - whole[0]);
      const start = Math.min(Math.max(from, whole[0]), whole[1] - span);
      shown = [start, start + span];
      draw();
    }

    const moves = {
      left: () => show(shown[0] - (shown[1] - shown[0]) / 3, shown[1] - (shown[1] - shown[0]) / 3),
      right: () => show(shown[0] + (shown[1] - shown[0]) / 3, shown[1] + (shown[1] - shown[0]) / 3),
      in: () => zoom(0.5),
      out: () => zoom(2),
      all: () => {
        select.value = "";
        show(...whole);
      },
    };
    function zoom(factor) {
      const middle = chosen && chosen.x1 <= shown[1] && chosen.x2 >= shown[0] ? (Math.max(chosen.x1, shown[0]) + Math.min(chosen.x2, shown[1])) / 2 : (shown[0] + shown[1]) / 2;
      const half = (factor * (shown[1] - shown[0])) / 2;
      show(middle - half, middle + half);
    }
    for (const button of document.querySelectorAll("[data-move]")) {
      button.addEventListener("click", () => moves[button.dataset.move]());
    }
    const keys = { ArrowLeft: "left", ArrowRight: "right", "+": "in", "=": "in", "-": "out", Home: "all" };
    element.addEventListener("keydown", (event) => {
      const move = keys[event.key];
      if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      moves[move]();
    });
    select.addEventListener("change", () => {
      const step = steps.find((each) => String(each.number) === select.value);
      if (!step) return moves.all();
      const edge = 0.1 * (step.x2 - step.x1);
      chosen = null;
      picked.textContent = `Step ${step.number}, ${step.name}: ${(step.x2 - step.x1).toPrecision(3)} ms.`;
      show(step.x1 - edge, step.x2 + edge);
    });
    drawers.push(draw);
    draw();
  }

  // Numbers by their value, other cells by their text. The second click turns the order.
  for (const button of document.querySelectorAll("th .sort")) {
    button.addEventListener("click", () => {
      const header = button.closest("th");
      const place = [...header.parentElement.children].indexOf(header);
      const body = header.closest("table").tBodies[0];
      const falling = header.getAttribute("aria-sort") !== "descending" && (header.classList.contains("number") || header.getAttribute("aria-sort") === "ascending");
      const key = (row) => {
        const cell = row.cells[place];
        return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
      };
      const rows = [...body.rows].sort((a, b) => d3.ascending(key(a), key(b)));
      if (falling) rows.reverse();
      body.append(...rows);
      for (const other of header.parentElement.children) other.removeAttribute("aria-sort");
      header.setAttribute("aria-sort", falling ? "descending" : "ascending");
    });
  }

  let waiting = null;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => drawers.forEach((draw) => draw()), 100);
  });
})();
