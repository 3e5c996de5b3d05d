"use strict";
// The page's behaviour. All text is set through textContent, so that no token can become markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { parts, frames } = data;
  const MEAN = -1; // the value of at.layer for the mean over all layers
  const COLOURS = 8;
  const at = { part: 0, layer: 0, heads: new Set(), lines: false, fixed: false, step: 0, row: 0, column: 0, near: null };
  let rows = [], columns = [], shown = { tables: [], hues: [], weights: [], vmax: 1 };
  let masked = new Set(); // row * columns + column of the cells that may not look
  const $ = (id) => document.getElementById(id);
  const formatNumber = (value) => { // the same format as format_number in formatting.py: 0.00000506 is 5.06e-06
    if (value === null) return "not finite";
    const small = value !== 0 && Math.abs(value) < 1e-4;
    return small ? value.toExponential().replace(/-(\d)$/, "-0$1") : String(value);
  };
  const share = (value, vmax) => Math.min(1, Math.max(0, (value || 0) / vmax));
  const apart = (piece) => `\u2068${piece}\u2069`; // isolates right-to-left tokens, which would reorder the numbers beside them
  const unknown = (axis, index) => part().unknown[axis].includes(index);
  const named = (axis, index) => `${apart(part()[axis][index])}${unknown(axis, index) ? " (unknown)" : ""}`;
  const isMasked = (i, j) => masked.has(i * columns.length + j);
  const describe = (i, j, weight) => isMasked(i, j) ? `${named("rows", i)} may not look at ${named("columns", j)}`
    : `${named("rows", i)} ← ${named("columns", j)}  ${formatNumber(weight)}`;
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
    const [vmax, bound] = at.fixed ? [1, 1] : [scaleMax([weights]), scaleMax(drawn)];
    shown = { tables: drawn, hues, weights, vmax, bound, contexts: contextsOf(chosen, heads), heads: heads.length || all.length };
    masked = maskedOf(chosen);
    const label = labelOf(chosen, heads), changed = $("label").textContent !== label;
    $("label").textContent = label;
    $("caption").textContent = part().captions[at.lines ? 1 : 0];
    $("hatched").hidden = at.lines || !masked.size;
    $("ringed").hidden = !part().unknown.rows.length && !part().unknown.columns.length;
    controls(chosen[0]);
    $("status").textContent = "";
    draw();
    if (changed) $("status").textContent = `${label}. ${$("status").textContent}`;
  }

  function maskedOf(chosen) { // the cells that no chosen layer may look at; a layer without a mask hides none
    const hides = (layer, i, j) => layer.masked !== null && layer.masked[i].some(([first, end]) => first <= j && j < end);
    const found = new Set();
    (chosen[0].masked || []).forEach((ranges, i) => ranges.forEach(([first, end]) => {
      for (let j = first; j < end; j++) if (chosen.every((layer) => hides(layer, i, j))) found.add(i * columns.length + j);
    }));
    return found;
  }

  function contextsOf(chosen, heads) { // the contexts of the chosen heads, by row; null for a mean of layers, which has none
    const [{ contexts }] = chosen;
    if (at.layer === MEAN || !contexts) return null;
    const picked = heads.length ? heads.map((h) => contexts[h]) : contexts;
    return rows.map((_, i) => picked.flatMap((head) => head[i]));
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
    for (const scale of document.querySelectorAll("[data-scale]")) press(scale, (scale.dataset.scale === "fixed") === at.fixed);
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
    $("limits").textContent = "";
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
    const widest = (axis) => Math.min(200, 24 + 8 * part().widest[axis]);
    const room = stepped() ? $("stage").clientWidth - 8 : 800; // the tokens stand at both ends of the lines
    const labels = part().labels, left = widest("rows");
    const right = left + Math.max(180, Math.min(460, room - left - widest("columns")));
    const several = shown.tables.length, y = (i) => 8 + (i + 0.5) * pitch;
    const beside = (h) => (several > 1 ? (h / (several - 1) - 0.5) * Math.min(9, 2.4 * several) : 0); // heads side by side
    const focus = at.near || (stepped() ? { side: "row", index: at.step } : null);
    const lit = ({ i, j }) => !focus || (focus.side === "row" ? i : j) === focus.index;
    const found = [];
    shown.tables.forEach((weights, h) => weights.forEach((row, i) => {
      const order = row.map((_, j) => j).sort((a, b) => row[b] - row[a]); // as strongest_lines in view_data.py
      order.forEach((j, rank) => {
        const strength = share(row[j], shown.bound);
        if (strength >= data.faintest) found.push({ strength, w: row[j], h, i, j, rank });
      });
    }));
    found.sort((a, b) => (focus ? lit(b) - lit(a) : 0) || a.rank - b.rank || b.strength - a.strength);
    const kept = found.slice(0, data.most).sort((a, b) => a.strength - b.strength); // the strongest on top
    const fewer = kept.length < found.length ? `${kept.length} of ${found.length} lines are drawn: the strongest of each row` +
      `${focus ? ", and all of the chosen token" : ""}. ` : "";
    $("limits").textContent = `${fewer}Weights below ${formatNumber(Number((data.faintest * shown.bound).toPrecision(3)))} have no line.`;
    const lines = kept.map((one) => drawing("line", {
      x1: left, x2: right, y1: y(one.i) + beside(one.h), y2: y(one.j) + beside(one.h), stroke: `var(--h${shown.hues[one.h] % COLOURS})`,
      "stroke-opacity": (one.strength * (lit(one) ? 1 : at.near ? 0.04 : 0.22)).toFixed(3), "data-tip": describe(one.i, one.j, one.w),
    }));
    const focused = $("lines").contains(document.activeElement);
    const target = at.near || { side: "row", index: at.row }; // the label that Tab reaches
    const names = (pieces, side, x, kind) => pieces.map((name, index) => {
      const here = target.side === side && target.index === index, ring = unknown(`${side}s`, index) ? " unknown" : "";
      return drawing("text", {
        x, y: y(index) + 4, class: `${kind}${ring}${focus && focus.side === side && focus.index === index ? " now" : ""}`,
        "data-side": side, "data-index": index, role: "img", tabindex: here ? 0 : -1, "aria-label": sentence(side, index),
      }, apart(name));
    });
    const width = right + widest("columns");
    $("lines").setAttribute("width", width);
    $("lines").setAttribute("height", count * pitch + 16);
    $("lines").replaceChildren(...lines, ...names(labels.rows, "row", left - 9, "end"), ...names(labels.columns, "column", right + 9, ""));
    for (const text of $("lines").querySelectorAll(".unknown")) {
      const { x, y, width, height } = text.getBBox();
      text.before(drawing("rect", { class: "ring", x: x - 4, y, width: width + 8, height, rx: 8 }));
    }
    if (focused) $("lines").querySelector("[tabindex='0']").focus();
  }

  function sentence(side, index) { // what a token attends to, or what attends to it, strongest first
    const weights = side === "row" ? shown.weights[index] : shown.weights.map((row) => row[index]), other = side === "row" ? "columns" : "rows";
    const best = weights.map((_, j) => j).filter((j) => weights[j] > 0).sort((a, b) => weights[b] - weights[a]).slice(0, 3);
    const list = best.map((j) => `${named(other, j)} ${formatNumber(weights[j])}`).join(", ") || "nothing";
    return `${named(`${side}s`, index)} ${side === "row" ? "attends to" : "is attended to by"} ${list}`;
  }

  function near(side, index) { // draws the lines of one token and announces them
    const count = (side === "row" ? rows : columns).length;
    at.near = { side, index: Math.max(0, Math.min(count - 1, index)) };
    if (side === "row") at.row = at.near.index;
    drawLines();
    $("status").textContent = sentence(side, at.near.index);
  }
  const besides = {
    ArrowUp: ({ side, index }) => [side, index - 1], ArrowDown: ({ side, index }) => [side, index + 1],
    ArrowLeft: ({ index }) => ["row", index], ArrowRight: ({ index }) => ["column", index],
    Home: ({ side }) => [side, 0], End: ({ side }) => [side, Infinity],
  };
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
    const head = make("tr", { role: "row" }, make("td", { role: "presentation", class: "corner" }));
    const name = (axis, index) => make("span", unknown(axis, index) ? { class: "unknown", title: "not in the vocabulary" } : {}, part().labels[axis][index]);
    columns.forEach((_, j) => head.append(make("th", { scope: "col", class: part().tall ? "tall" : "", dir: "auto" }, name("columns", j))));
    const body = make("tbody");
    rows.forEach((_, i) => {
      const line = make("tr", { role: "row" }, make("th", { scope: "row", dir: "auto" }, name("rows", i)));
      columns.forEach((_, j) => {
        const text = describe(i, j, weights[i][j]);
        const properties = { role: "gridcell", tabindex: -1, "aria-label": text, "data-tip": text, ...(isMasked(i, j) ? { class: "masked" } : {}) };
        line.append(make("td", { ...properties, "--share": share(weights[i][j], vmax) }));
      });
      body.append(line);
    });
    table.replaceChildren(make("thead", {}, head), body);
    const room = stepped() ? Math.max(300, table.parentNode.clientWidth - 80) : 800;
    table.style.setProperty("--side", `${Math.max(14, Math.min(36, Math.floor(room / columns.length) - 1))}px`);
    $("stage").style.scrollPadding = `${table.tHead.offsetHeight}px 4px 4px ${head.cells[0].offsetWidth}px`; // of a focused cell
    enter(at.row, at.column);
  }

  function follow(row) { // scrolls within the box, so that the sticky header does not cover the row
    const box = $("stage"), spot = row.getBoundingClientRect(), { top } = box.getBoundingClientRect();
    const above = spot.top - top - table.tHead.offsetHeight, below = spot.bottom - top - box.clientHeight;
    if (above < 0) box.scrollTop += above;
    else if (below > 0) box.scrollTop += below;
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
    const most3 = formatNumber(Number(most.toPrecision(3)));
    const legend = make("span", { class: "legend" }, `−${most3} `, make("i"), ` 0 `, make("i"), ` ${most3}`);
    const ends = [`${vector.length} wide, ${low} … ${high}`].map((text) => make("span", {}, text));
    $(id).replaceChildren(line, make("p", { class: "range" }, ...ends, legend));
  }

  function stages() { // the panels of the step in the order of the chain; the data has no context for some choices
    const there = part().chain.filter(([shows]) => shows !== "context" || shown.contexts);
    for (const section of $("steps").children) section.hidden = true;
    there.forEach(([shows, title, note], i) => {
      const section = $("steps").querySelector(`[data-stage=${shows}]`);
      const after = shows === "logits" && part().name !== "cross" ? `the token after ${apart(rows[at.step])}` : note;
      const heads = shows === "context" && shown.heads > 1 ? `, of ${shown.heads} heads side by side` : "";
      section.firstElementChild.replaceChildren(make("b", {}, String(i + 1)), `${title} `, make("small", {}, after + heads));
      section.hidden = false;
      $("steps").append(section);
    });
    return there.map(([shows]) => shows);
  }

  function bars(weights, vmax) {
    const hot = strongest(weights);
    $("bars").replaceChildren(...part().labels.columns.map((name, j) => {
      const shown = weights[j] >= 0.05 * vmax ? weights[j].toFixed(2).replace(/^0/, "") : "";
      const bar = make("i", { class: isMasked(at.step, j) ? "masked" : "", "--share": share(weights[j], vmax) });
      const text = isMasked(at.step, j) ? describe(at.step, j) : `${named("columns", j)}  ${formatNumber(weights[j])}`;
      return make("li", { class: j === hot ? "hot" : "", "data-tip": text, "aria-label": text },
        make("span", { class: "room" }, shown, bar),
        make("span", { class: `name${unknown("columns", j) ? " unknown" : ""}`, dir: "auto" }, name));
    }));
    const strong = $("bars").children[hot];
    if (strong) $("bars").scrollLeft = strong.offsetLeft - $("bars").offsetLeft - $("bars").clientWidth / 2;
    if (!at.lines) [...table.tHead.rows[0].cells].forEach((head, j) => head.classList.toggle("hot", j - 1 === hot));
    return hot;
  }

  function ranking(frame) {
    const best = frame.top.reduce((top, entry, i) => ((entry[1] ?? -Infinity) > (frame.top[top][1] ?? -Infinity) ? i : top), 0);
    $("top").tBodies[0].replaceChildren(...frame.top.map(([piece, logit, chance], i) => {
      const mark = i === best ? "argmax" : piece === frame.token ? "generated" : "";
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
    else {
      [...table.tBodies[0].rows].forEach((row, i) => row.setAttribute("aria-selected", i === at.step));
      follow(table.tBodies[0].rows[at.step]);
    }
    const vectors = { before: frame.before, state: frame.state, context: shown.contexts && shown.contexts[at.step] };
    for (const shows of stages()) if (shows in vectors) strip(shows, vectors[shows]);
    const hot = bars(weights[at.step], vmax);
    enter(at.step, at.column);
    ranking(frame);
    for (const button of document.querySelectorAll("[data-go]")) {
      const back = ["first", "back"].includes(button.dataset.go);
      // not "disabled", which would take the focus away from the button at the last step
      button.setAttribute("aria-disabled", at.step === (back ? 0 : frames.length - 1));
    }
    const looks = hot < 0 ? "" : ` Attends most to ${named("columns", hot)}, ${weights[at.step][hot]}.`;
    const sure = frame.top.find(([piece]) => piece === frame.token);
    $("status").textContent = `Step ${at.step + 1} of ${frames.length}.${looks} Generates ${frame.token}` +
      `${sure ? `, probability ${sure[2]}` : ""}. Output so far: ${frames.slice(0, at.step + 1).map((f) => f.text).join("")}`;
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
    s: () => { at.fixed = !at.fixed; choose(); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const inside = event.target.closest("#matrix td"), menu = event.target.closest("select"), token = event.target.closest("#lines text");
    if (event.key in choices) choices[event.key]();
    else if (event.shiftKey) return;
    else if ((inside || menu || token) && event.key === "Escape") { event.target.blur(); at.near = null; drawLines(); }
    else if (menu) return; // its own arrow keys
    else if (token && event.key in besides) near(...besides[event.key]({ side: token.dataset.side, index: Number(token.dataset.index) }));
    else if (token && event.key === "Enter" && stepped() && token.dataset.side === "row") show(Number(token.dataset.index));
    else if (inside && event.key in moves) move(...moves[event.key]());
    else if (!inside && !token && stepped() && event.key in steps) show(steps[event.key]());
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
  let pointed = false; // after a choice with the mouse, the arrow keys step again; after one with keys, they stay in the menu
  $("layer").addEventListener("pointerdown", () => { pointed = true; });
  $("layer").addEventListener("keydown", () => { pointed = false; });
  $("layer").addEventListener("change", (event) => {
    at.heads.clear();
    goLayer(Number(event.target.value));
    if (pointed) event.target.blur();
  });
  for (const scale of document.querySelectorAll("[data-scale]")) {
    scale.addEventListener("click", () => { at.fixed = scale.dataset.scale === "fixed"; choose(); });
  }
  for (const view of document.querySelectorAll("[data-view]")) {
    view.addEventListener("click", () => { at.lines = view.dataset.view === "lines"; choose(); });
  }

  const count = part().layers.length;
  at.layer = count < 2 ? 0 : part().name !== "cross" ? MEAN : count > 2 ? count - 2 : 1; // the layer that aligns best: see alignment_layer
  choose();
})();
