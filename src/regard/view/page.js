"use strict";
// The page's behaviour. All text goes in through textContent, so no piece can become markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const { rows, columns, choices, frames } = data;
  const at = { choice: 0, step: 0, row: 0, column: 0 };
  const $ = (id) => document.getElementById(id);
  const told = (value) => (value === null ? "not finite" : String(value));
  const share = (value, ceiling) => Math.min(1, Math.max(0, (value || 0) / ceiling));
  const apart = (piece) => `\u2068${piece}\u2069`; // right-to-left pieces must not reorder the numbers beside them
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

  // ---- the exact number, shown beside whatever is pointed at or focused
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

  // ---- the matrix
  const table = $("matrix");
  const cell = (row, column) => table.tBodies[0].rows[row].cells[column + 1];

  function drawMatrix() {
    const { weights, ceiling } = choices[at.choice];
    const tall = columns.some((name) => [...name].length > 2);
    const head = make("tr", { role: "row" }, make("td", { role: "presentation", style: "all:unset" }));
    for (const name of columns) {
      head.append(make("th", { scope: "col", class: tall ? "tall" : "", dir: "auto" }, make("span", {}, name)));
    }
    const body = make("tbody");
    rows.forEach((row, i) => {
      const line = make("tr", { role: "row" }, make("th", { scope: "row", dir: "auto" }, row));
      columns.forEach((column, j) => {
        const text = `${apart(row)} ← ${apart(column)}  ${told(weights[i][j])}`;
        const properties = { role: "gridcell", tabindex: -1, "aria-label": text, "data-tip": text };
        line.append(make("td", { ...properties, "--share": share(weights[i][j], ceiling) }));
      });
      body.append(line);
    });
    table.replaceChildren(make("thead", {}, head), body);
    const room = frames.length ? table.parentNode.clientWidth - 80 : 800;
    table.style.setProperty("--side", `${Math.max(14, Math.min(36, Math.floor(room / columns.length) - 1))}px`);
    enter(at.row, at.column);
    $("ceiling").textContent = String(ceiling);
  }

  function enter(row, column) { // the one cell that Tab reaches
    if (!rows.length || !columns.length) return;
    cell(at.row, at.column).tabIndex = -1;
    [at.row, at.column] = [row, column];
    cell(row, column).tabIndex = 0;
  }

  function move(row, column) {
    enter(Math.max(0, Math.min(rows.length - 1, row)), Math.max(0, Math.min(columns.length - 1, column)));
    cell(at.row, at.column).focus();
    if (frames.length) show(at.row);
  }

  // ---- one decoding step
  function strip(id, vector) {
    const most = Math.max(...vector.map((v) => Math.abs(v || 0)), 1e-9);
    const low = Math.min(...vector), high = Math.max(...vector);
    const line = make("div", { class: "strip", role: "img", "aria-label": `${vector.length} numbers from ${low} to ${high}` });
    vector.forEach((value, i) => {
      const tone = value < 0 ? "var(--warm)" : "var(--ink)";
      line.append(make("i", { "data-tip": `[${i}]  ${told(value)}`, "--tone": tone, "--share": share(Math.abs(value), most) }));
    });
    const ends = [`${vector.length} wide`, `${low} … ${high}`].map((text) => make("span", {}, text));
    $(id).replaceChildren(line, make("p", { class: "range" }, ...ends));
  }

  function bars(weights, ceiling) {
    const hot = strongest(weights);
    $("bars").replaceChildren(...columns.map((name, j) => {
      const shown = weights[j] >= 0.05 * ceiling ? weights[j].toFixed(2).replace(/^0/, "") : "";
      const room = make("span", { class: "room" }, shown, make("i", { "--share": share(weights[j], ceiling) }));
      const text = `${apart(name)}  ${told(weights[j])}`;
      return make("li", { class: j === hot ? "hot" : "", "data-tip": text, "aria-label": text },
        room, make("span", { class: "name", dir: "auto" }, name));
    }));
    [...table.tHead.rows[0].cells].forEach((head, j) => head.classList.toggle("hot", j - 1 === hot));
    return hot;
  }

  function ranking(frame) {
    const best = frame.top.reduce((top, entry, i) => ((entry[1] ?? -Infinity) > (frame.top[top][1] ?? -Infinity) ? i : top), 0);
    $("top").tBodies[0].replaceChildren(...frame.top.map(([piece, logit, chance], i) => {
      const mark = i === best ? "argmax" : piece === frame.token ? "written" : ""; // they differ under beams and sampling
      return make("tr", { class: i === best ? "best" : "" },
        make("td", { dir: "auto" }, piece), make("td", {}, told(logit)), make("td", {}, told(chance)),
        make("td", {}, make("div", { class: "gauge", "--share": share(chance, 1) })), make("td", {}, mark));
    }));
  }

  function show(step) {
    at.step = Math.max(0, Math.min(frames.length - 1, step));
    const frame = frames[at.step], { weights, ceiling } = choices[at.choice];
    $("count").textContent = `Step ${at.step + 1} of ${frames.length}`;
    $("output").replaceChildren(...frames.slice(0, at.step + 1).map((f, i) =>
      make("li", { dir: "auto", ...(i === at.step ? { "aria-current": "step" } : {}) }, f.token)));
    [...table.tBodies[0].rows].forEach((row, i) => row.setAttribute("aria-selected", i === at.step));
    strip("state", frame.state);
    $("read").hidden = frame.context === null;
    if (frame.context) strip("context", frame.context);
    const hot = bars(weights[at.step], ceiling);
    enter(at.step, at.column);
    ranking(frame);
    for (const button of document.querySelectorAll("[data-go]")) {
      const back = ["first", "back"].includes(button.dataset.go);
      // not disabled: a button that has the focus must not lose it at the last step
      button.setAttribute("aria-disabled", at.step === (back ? 0 : frames.length - 1));
    }
    const looks = hot < 0 ? "" : ` Looks most at ${columns[hot]}, ${weights[at.step][hot]}.`;
    const sure = frame.top.find(([piece]) => piece === frame.token);
    $("said").textContent = `Step ${at.step + 1} of ${frames.length}.${looks} Writes ${frame.token}` +
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
  document.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.target.closest("select")) return;
    const inside = event.target.closest("#matrix td");
    if (inside && event.key === "Escape") inside.blur();
    else if (inside && event.key in moves) move(...moves[event.key]());
    else if (!inside && frames.length && event.key in steps) show(steps[event.key]());
    else return;
    event.preventDefault();
  });
  table.addEventListener("focusin", ({ target }) => enter(target.parentNode.sectionRowIndex, target.cellIndex - 1));
  table.addEventListener("mousedown", (event) => {
    const row = event.target.closest("tbody tr");
    if (!row || !frames.length) return;
    event.preventDefault(); // a click picks the step and leaves the arrow keys to the steps
    show(row.sectionRowIndex);
  });
  const goes = { first: "Home", back: "ArrowLeft", next: "ArrowRight", last: "End" };
  for (const button of document.querySelectorAll("[data-go]")) {
    button.addEventListener("click", () => show(steps[goes[button.dataset.go]]()));
  }
  if ($("choice")) {
    $("choice").addEventListener("change", (event) => {
      at.choice = Number(event.target.value);
      drawMatrix();
      if (frames.length) show(at.step);
    });
  }

  drawMatrix();
  if (frames.length) show(0);
})();
