"use strict";
// The page of captions: a canvas with one pixel for each cell lies over the image, and the browser enlarges it, as a
// grid or smoothly (bilinear). All text is set through textContent, so that no word can become markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const sections = [...document.querySelectorAll("section[data-view]")];
  const status = document.getElementById("status");
  const at = sections.map(() => 0); // the word of each image
  let active = 0;

  function draw(view, speak) {
    const { rows, columns, maps, said } = data[view];
    if (!maps.length) return;
    const section = sections[view], word = at[view];
    const canvas = section.querySelector("canvas"), pen = canvas.getContext("2d");
    canvas.width = columns;
    canvas.height = rows;
    const pixels = pen.createImageData(columns, rows);
    maps[word].forEach((weight, cell) => {
      pixels.data.set([11, 15, 22, Math.round(255 * (1 - Math.min(1, weight || 0)))], 4 * cell);
    });
    pen.putImageData(pixels, 0, 0);
    section.querySelectorAll("[data-word]").forEach((button, number) => {
      button.setAttribute("aria-pressed", String(number === word));
    });
    section.querySelector(".where").textContent = said[word];
    if (speak) status.textContent = `${word + 1} of ${maps.length}, ${said[word]}`;
  }

  function go(view, word) {
    active = view;
    at[view] = Math.max(0, Math.min(data[view].maps.length - 1, word));
    draw(view, true);
  }

  function smooth(on) {
    document.body.classList.toggle("smooth", on);
    document.querySelectorAll("[data-smooth]").forEach((button) => {
      button.setAttribute("aria-pressed", String((button.dataset.smooth === "1") === on));
    });
  }

  sections.forEach((section, view) => {
    section.addEventListener("click", (event) => {
      const button = event.target.closest("[data-word]");
      if (button) go(view, Number(button.dataset.word));
      else active = view;
    });
    section.addEventListener("focusin", () => { active = view; });
    draw(view, false);
  });
  document.querySelectorAll("[data-smooth]").forEach((button) => {
    button.addEventListener("click", () => smooth(button.dataset.smooth === "1"));
  });
  const opacity = document.getElementById("opacity"); // of the shade over a cell without weight
  if (opacity) opacity.addEventListener("input", () => document.body.style.setProperty("--shade", opacity.value));
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target === opacity) return;
    const last = data[active].maps.length - 1;
    const places = { ArrowLeft: at[active] - 1, ArrowRight: at[active] + 1, Home: 0, End: last };
    if (event.key in places) go(active, places[event.key]);
    else if (event.key === "s") smooth(!document.body.classList.contains("smooth"));
    else if (sections.length > 1 && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
      active = Math.max(0, Math.min(sections.length - 1, active + (event.key === "ArrowDown" ? 1 : -1)));
      sections[active].scrollIntoView({ block: "nearest" });
      sections[active].focus({ preventScroll: true });
    } else return;
    event.preventDefault();
  });
})();
