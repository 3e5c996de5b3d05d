"use strict";
// The page's behaviour. All text is set through textContent, so that no token can become markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { parts, frames } = data;
  const MEAN = -1; // the value of at.layer for the mean over all layers
  const COLOURS = 8, FAINTEST = 0.04, MOST_LINES = 4000;
  const at = { part: 0, layer: 0, heads: new Set(), lines: false, step: 0, row: 0, column: 0, near: null };
  let rows = [], columns = [], shown = { tables: [], hues: [], weights: [], vmax: 1 };
  const $ = (id) => document.getElementById(id);
  const formatNumber = (value) => { // the same format as format_number in formatting.py: 0.00000506 is 5.06e-06
    if (value === null) return "not finite";
    const small = value !== 0 && Math.abs(value) < 1e-4;
    return small ? value.toExponential().replace(/-(\d)$/, "-0$1") : String(value);
  };
  const share = (value, vmax) => Math.min(1, Math.max(0, (value || 0) / vmax));
  const apart = (piece) => `\u2068${piece}\u2069`; // isolates right-to-left tokens, which would reorder the numbers beside them
  const strongest = (weights) => weights.reduce((best, w, j) => (w > (weights[best] || 0) ? j : best), -1);

  function make(tag, properties = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
      if (name.startsWith("--")) element.style.setProperty(name, value);
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }

  // ---- a tooltip with the exact number of the element under the pointer or the focus
  function tip(element) {
    const box = $("tip");
    box.hidden = !element;
    if (!element) return;
    box.textContent = element.dataset.tip;
    const spot = element.getBoundingClientRect();
    const left = spot.left + spot.width / 2 - box.offsetWidth / 2;
    const above = spot.top - box.offsetHeight - 8;
    const widest = document.documentElement.clientWidth - box.offsetWidth - 4;
    box.style.left = `${scrollX + Math.max(4, Math.min(left, widest))}px`;
    box.style.top = `${scrollY + (above > 0 ? above : spot.bottom + 8)}px`;
  }
  document.addEventListener("mouseover", (event) => tip(event.target.closest("[data-tip]")));
  document.addEventListener("focusin", (event) => tip(event.target.closest("[data-tip]")));
  document.addEventListener("focusout", () => tip(null));

  // ---- the selection: a part, one of its layers or all, and heads of the layer
  const part = () => parts[at.part];
  const stepped = () => frames.length > 0 && part().steps;

  function tables(layer) { // the weights of each head; for long texts they are stored in base 64, two bytes per weight
    if (typeof layer.weights === "string") {
      const bytes = atob(layer.weights), down = part().rows.length, across = part().columns.length;
      const weight = (k) => Number(((bytes.charCodeAt(2 * k) + 256 * bytes.charCodeAt(2 * k + 1)) / 65535).toPrecision(4));
      layer.weights = layer.heads.map((_, h) => Array.from({ length: down }, (_, i) =>
        Array.from({ length: across }, (_, j) => weight((h * down + i) * across + j))));
    }
    return layer.weights;
  }

  function mean(some) {
    if (some.length === 1) return some[0];
    const each = (i, j) => some.reduce((sum, table) => sum + (table[i][j] || 0), 0) / some.length;
    return rows.map((_, i) => columns.map((_, j) => Number(each(i, j).toPrecision(6))));
  }

  function scaleMax(some) { // the end of the colour scale: the same as scale_max in view_data.py
    const all = some.flat(), seen = all.map((row) => row.filter((w) => w > 0).length), most = Math.max(0, ...seen);
    let peak = 0;
    all.forEach((row, i) => { if (2 * seen[i] >= most) for (const w of row) if (w > peak) peak = w; });
    const top = Math.max(peak, 2 / Math.max(1, columns.length));
    if (top > 0.5 || peak < 1e-6) return Math.max(1, peak);
    const decade = 10 ** Math.floor(Math.log10(top));
    return Number([1, 2, 5, 10].map((step) => step * decade).find((v) => v >= top * (1 - 1e-6)).toPrecision(9));
  }

  function choose() {
    ({ rows, columns } = part());
    at.row = Math.min(at.row, Math.max(0, rows.length - 1));
    at.column = Math.min(at.column, Math.max(0, columns.length - 1));
    const chosen = at.layer === MEAN ? part().layers : [part().layers[at.layer]];
    const all = chosen.flatMap((layer) => tables(layer));
    const heads = [...at.heads].sort((a, b) => a - b);
    const picked = at.layer === MEAN || !heads.length ? all : heads.map((h) => all[h]);
    const weights = mean(picked);
    const apart = at.layer !== MEAN && picked.length > 1; // several heads, each in its own colour
    const drawn = apart ? picked : [weights];
    const hues = apart ? (heads.length ? heads : all.map((_, h) => h)) : [heads.length === 1 ? heads[0] : 0];
    shown = { tables: drawn, hues, weights, vmax: scaleMax([weights]), bound: scaleMax(drawn) };
    $("label").textContent = labelOf(chosen, heads);
    $("caption").textContent = part().captions[at.lines ? 1 : 0];
    controls(chosen[0]);
    draw();
  }

  function labelOf(chosen, heads) {
    const own = chosen[0].heads;
    if (at.layer === MEAN) return `${part().name ? `${part().name} · ` : ""}mean of ${chosen.length} layers, all heads`;
    if (own.length === 1) return chosen[0].label;
    const some = heads.length === 1 ? `head ${own[heads[0]]}` : `mean of ${heads.length || own.length} heads`;
    return `${chosen[0].label} · ${at.lines ? some.replace("mean of ", "") : some}`;
  }

  function press(button, on) {
    button.setAttribute("aria-pressed", on);
    return button;
  }

  function button(text, pressed, act, properties = {}) {
    const made = press(make("button", { type: "button", ...properties }, text), pressed);
    made.addEventListener("click", act);
    return made;
  }

  function fill(id, buttons) { // replaces the buttons and keeps the focus
    const focused = [...$(id).children].indexOf(document.activeElement);
    $(id).replaceChildren(...buttons);
    if (focused >= 0 && $(id).children[focused]) $(id).children[focused].focus();
  }

  function controls(layer) {
    $("parts").hidden = parts.length < 2;
    fill("parts", parts.map((p, i) => button(p.name || "all", i === at.part, () => goPart(i))));
    const layers = part().layers;
    $("layers").hidden = layers.length < 2;
    const options = layers.map((l, i) => make("option", { value: i }, l.number === null ? l.label : String(l.number)));
    $("layer").replaceChildren(make("option", { value: MEAN }, "mean of all"), ...options);
    $("layer").value = at.layer;
    for (const view of document.querySelectorAll("[data-view]")) press(view, (view.dataset.view === "lines") === at.lines);
    $("heads").hidden = at.layer === MEAN || layer.heads.length < 2;
    const chips = layer.heads.map((number, h) => button(String(number), at.heads.has(h), (event) => pick(h, event.shiftKey),
      { "--hue": `var(--h${h % COLOURS})`, title: "Shift+click adds or removes a head" }));
    const every = button("all", !at.heads.size, () => pick(null, false));
    fill("heads", [make("span", {}, "Heads"), every, ...chips]);
  }

  function pick(head, more) {
    if (!more || head === null) at.heads = new Set(head === null ? [] : [head]);
    else if (!at.heads.delete(head)) at.heads.add(head);
    choose();
  }

  function goPart(to) {
    at.part = (to + parts.length) % parts.length;
    const { layers } = part();
    if (at.layer !== MEAN || layers.length < 2) at.layer = Math.min(Math.max(at.layer, 0), layers.length - 1);
    at.heads = new Set([...at.heads].filter((h) => at.layer !== MEAN && h < layers[at.layer].heads.length));
    choose();
  }

  function goLayer(to) {
    const count = part().layers.length;
    if (count < 2) return;
    at.layer = to > count - 1 ? MEAN : to < MEAN ? count - 1 : to;
    choose();
  }

  function goHead(by) {
    if (at.layer === MEAN) return;
    const count = part().layers[at.layer].heads.length;
    if (count < 2) return;
    const now = at.heads.size === 1 ? [...at.heads][0] : by > 0 ? -1 : count;
    const next = now + by;
    pick(next < 0 || next >= count ? null : next, false);
  }

  function draw() {
    table.hidden = at.lines;
    $("lines").toggleAttribute("hidden", !at.lines);
    drawMatrix();
    const bound = at.lines ? shown.bound : shown.vmax, drawn = at.lines ? shown.tables : [shown.weights];
    const more = drawn.some((table) => table.some((row) => row.some((w) => w > bound)));
    $("vmax").textContent = `${bound}${more ? " and more" : ""}`;
    for (const id of ["stepper", "steps"]) if ($(id)) $(id).hidden = !stepped();
    document.querySelector("main").className = frames.length ? `wide${stepped() ? "" : " still"}` : "lone";
    if (stepped()) show(at.step);
    else drawLines();
  }

  // ---- the lines: queries on the left, keys on the right
  function drawLines() {
    if (!at.lines) return;
    const drawing = (tag, properties, ...children) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
      element.append(...children);
      return element;
    };
    const count = Math.max(rows.length, columns.length), pitch = count > 60 ? 17 : 24;
    const widest = (names) => Math.min(200, 16 + 8 * Math.max(1, ...names.map((name) => [...name].length)));
    const room = stepped() ? $("stage").clientWidth - 8 : 800; // the tokens stand at both ends of the lines
    const left = widest(rows), right = left + Math.max(180, Math.min(460, room - left - widest(columns)));
    const several = shown.tables.length, y = (i) => 8 + (i + 0.5) * pitch;
    const beside = (h) => (several > 1 ? (h / (several - 1) - 0.5) * Math.min(9, 2.4 * several) : 0); // heads side by side
    const found = [];
    shown.tables.forEach((weights, h) => weights.forEach((row, i) => row.forEach((w, j) => {
      const strength = share(w, shown.bound);
      if (strength >= FAINTEST) found.push({ strength, w, h, i, j });
    })));
    found.sort((a, b) => a.strength - b.strength); // the strongest lines are drawn last, on top
    const focus = at.near || (stepped() ? { side: "row", index: at.step } : null);
    const lit = ({ i, j }) => !focus || (focus.side === "row" ? i : j) === focus.index;
    const lines = found.slice(-MOST_LINES).map((one) => drawing("line", {
      x1: left, x2: right, y1: y(one.i) + beside(one.h), y2: y(one.j) + beside(one.h), stroke: `var(--h${shown.hues[one.h] % COLOURS})`,
      "stroke-opacity": (one.strength * (lit(one) ? 1 : at.near ? 0.04 : 0.22)).toFixed(3),
      "data-tip": `${apart(rows[one.i])} ← ${apart(columns[one.j])}  ${formatNumber(one.w)}`,
    }));
    const names = (pieces, side, x, kind) => pieces.map((name, index) => drawing("text", {
      x, y: y(index) + 4, class: `${kind}${focus && focus.side === side && focus.index === index ? " now" : ""}`,
      "data-side": side, "data-index": index,
    }, name));
    const width = right + widest(columns);
    $("lines").setAttribute("width", width);
    $("lines").setAttribute("height", count * pitch + 16);
    $("lines").replaceChildren(...lines, ...names(rows, "row", left - 9, "end"), ...names(columns, "column", right + 9, ""));
  }
  $("lines").addEventListener("mouseover", ({ target }) => {
    const side = target.dataset.side;
    if (!side && !at.near) return;
    at.near = side ? { side, index: Number(target.dataset.index) } : null;
    drawLines();
  });
  $("lines").addEventListener("mouseleave", () => { at.near = null; drawLines(); });
  $("lines").addEventListener("click", ({ target }) => {
    if (stepped() && target.dataset.side === "row") show(Number(target.dataset.index));
  });

  // ---- the matrix
  const table = $("matrix");
  const cell = (row, column) => table.tBodies[0].rows[row].cells[column + 1];

  function drawMatrix() {
    if (at.lines) return;
    const { weights, vmax } = shown;
    const tall = columns.some((name) => [...name].length > 2);
    const head = make("tr", { role: "row" }, make("td", { role: "presentation", style: "all:unset" }));
    for (const name of columns) {
      head.append(make("th", { scope: "col", class: tall ? "tall" : "", dir: "auto" }, make("span", {}, name)));
    }
    const body = make("tbody");
    rows.forEach((row, i) => {
      const line = make("tr", { role: "row" }, make("th", { scope: "row", dir: "auto" }, row));
      columns.forEach((column, j) => {
        const text = `${apart(row)} ← ${apart(column)}  ${formatNumber(weights[i][j])}`;
        const properties = { role: "gridcell", tabindex: -1, "aria-label": text, "data-tip": text };
        line.append(make("td", { ...properties, "--share": share(weights[i][j], vmax) }));
      });
      body.append(line);
    });
    table.replaceChildren(make("thead", {}, head), body);
    const room = stepped() ? Math.max(300, table.parentNode.clientWidth - 80) : 800;
    table.style.setProperty("--side", `${Math.max(14, Math.min(36, Math.floor(room / columns.length) - 1))}px`);
    enter(at.row, at.column);
  }

  function enter(row, column) { // makes one cell the target of Tab
    if (!rows.length || !columns.length) return;
    if (at.lines) { [at.row, at.column] = [row, column]; return; }
    cell(at.row, at.column).tabIndex = -1;
    [at.row, at.column] = [row, column];
    cell(row, column).tabIndex = 0;
  }

  function move(row, column) {
    enter(Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column)));
    cell(at.row, at.column).focus();
    if (stepped()) show(at.row);
  }

  // ---- one decoding step
  function strip(id, vector) {
    const most = Math.max(...vector.map((v) => Math.abs(v || 0)), 1e-9);
    const low = formatNumber(Math.min(...vector)), high = formatNumber(Math.max(...vector));
    const line = make("div", { class: "strip", role: "img", "aria-label": `${vector.length} numbers from ${low} to ${high}` });
    vector.forEach((value, i) => {
      const tone = value < 0 ? "var(--warm)" : "var(--ink)";
      line.append(make("i", { "data-tip": `[${i}]  ${formatNumber(value)}`, "--tone": tone, "--share": share(Math.abs(value), most) }));
    });
    const ends = [`${vector.length} wide`, `${low} … ${high}`].map((text) => make("span", {}, text));
    $(id).replaceChildren(line, make("p", { class: "range" }, ...ends));
  }

  function bars(weights, vmax) {
    const hot = strongest(weights);
    $("bars").replaceChildren(...columns.map((name, j) => {
      const shown = weights[j] >= 0.05 * vmax ? weights[j].toFixed(2).replace(/^0/, "") : "";
      const room = make("span", { class: "room" }, shown, make("i", { "--share": share(weights[j], vmax) }));
      const text = `${apart(name)}  ${formatNumber(weights[j])}`;
      return make("li", { class: j === hot ? "hot" : "", "data-tip": text, "aria-label": text },
        room, make("span", { class: "name", dir: "auto" }, name));
    }));
    if (!at.lines) [...table.tHead.rows[0].cells].forEach((head, j) => head.classList.toggle("hot", j - 1 === hot));
    return hot;
  }

  function ranking(frame) {
    const best = frame.top.reduce((top, entry, i) => ((entry[1] ?? -Infinity) > (frame.top[top][1] ?? -Infinity) ? i : top), 0);
    $("top").tBodies[0].replaceChildren(...frame.top.map(([piece, logit, chance], i) => {
      const mark = i === best ? "argmax" : piece === frame.token ? "generated" : ""; // they differ where it is formatNumber what to say
      return make("tr", { class: i === best ? "best" : "" },
        make("td", { dir: "auto" }, piece), make("td", {}, formatNumber(logit)), make("td", {}, formatNumber(chance)),
        make("td", {}, make("div", { class: "gauge", "--share": share(chance, 1) })), make("td", {}, mark));
    }));
  }

  function show(step) {
    at.step = Math.max(0, Math.min(frames.length - 1, step));
    const frame = frames[at.step], { weights, vmax } = shown;
    $("count").textContent = `Step ${at.step + 1} of ${frames.length}`;
    $("output").replaceChildren(...frames.slice(0, at.step + 1).map((f, i) =>
      make("li", { dir: "auto", ...(i === at.step ? { "aria-current": "step" } : {}) }, f.token)));
    if (at.lines) drawLines();
    else [...table.tBodies[0].rows].forEach((row, i) => row.setAttribute("aria-selected", i === at.step));
    strip("state", frame.state);
    $("read").hidden = frame.context === null;
    if (frame.context) strip("context", frame.context);
    const hot = bars(weights[at.step], vmax);
    enter(at.step, at.column);
    ranking(frame);
    $("after").textContent = part().name === "cross" ? "the next token" : `the token after ${apart(rows[at.step])}`;
    for (const button of document.querySelectorAll("[data-go]")) {
      const back = ["first", "back"].includes(button.dataset.go);
      // not "disabled", which would take the focus away from the button at the last step
      button.setAttribute("aria-disabled", at.step === (back ? 0 : frames.length - 1));
    }
    const looks = hot < 0 ? "" : ` Attends most to ${columns[hot]}, ${weights[at.step][hot]}.`;
    const sure = frame.top.find(([piece]) => piece === frame.token);
    $("status").textContent = `Step ${at.step + 1} of ${frames.length}.${looks} Generates ${frame.token}` +
      `${sure ? `, probability ${sure[2]}` : ""}. Output so far: ${frames.slice(0, at.step + 1).map((f) => f.token).join("")}`;
  }

  // ---- keys and buttons
  const steps = {
    ArrowLeft: () => at.step - 1, ArrowRight: () => at.step + 1, Home: () => 0, End: () => frames.length - 1,
  };
  const moves = {
    ArrowLeft: () => [at.row, at.column - 1], ArrowRight: () => [at.row, at.column + 1],
    ArrowUp: () => [at.row - 1, at.column], ArrowDown: () => [at.row + 1, at.column],
    Home: () => [at.row, 0], End: () => [at.row, columns.length - 1],
  };
  const choices = {
    v: () => { at.lines = !at.lines; choose(); }, p: () => goPart(at.part + 1), P: () => goPart(at.part - 1),
    l: () => goLayer(at.layer + 1), L: () => goLayer(at.layer - 1), h: () => goHead(1), H: () => goHead(-1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("select")) return;
    const inside = event.target.closest("#matrix td");
    if (event.key in choices) choices[event.key]();
    else if (event.shiftKey) return;
    else if (inside && event.key === "Escape") inside.blur();
    else if (inside && event.key in moves) move(...moves[event.key]());
    else if (!inside && stepped() && event.key in steps) show(steps[event.key]());
    else return;
    event.preventDefault();
  });
  table.addEventListener("focusin", ({ target }) => enter(target.parentNode.sectionRowIndex, target.cellIndex - 1));
  table.addEventListener("mousedown", (event) => {
    const row = event.target.closest("tbody tr");
    if (!row || !stepped()) return;
    event.preventDefault(); // a click selects the step; the arrow keys still move between steps
    show(row.sectionRowIndex);
  });
  const goes = { first: "Home", back: "ArrowLeft", next: "ArrowRight", last: "End" };
  for (const button of document.querySelectorAll("[data-go]")) {
    button.addEventListener("click", () => show(steps[goes[button.dataset.go]]()));
  }
  $("layer").addEventListener("change", (event) => { at.heads.clear(); goLayer(Number(event.target.value)); });
  for (const view of document.querySelectorAll("[data-view]")) {
    view.addEventListener("click", () => { at.lines = view.dataset.view === "lines"; choose(); });
  }

  const count = part().layers.length;
  at.layer = count < 2 ? 0 : part().name !== "cross" ? MEAN : count > 2 ? count - 2 : 1; // the layer that aligns best: see alignment_layer
  choose();
})();
