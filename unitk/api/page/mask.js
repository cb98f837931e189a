"use strict";

/**
 * The mask of a drawing (`unitk.api.drawing.Drawing.record`) as an element: row q has a square in
 * the colour of slot k where q sees k. Choosing a row says what its slot sees and predicts.
 */
function drawMask(drawing) {
  const {names, kinds, labels, fields, sees} = drawing;
  const element = (tag, text, name) => {
    const found = document.createElement(tag);
    if (text !== undefined) found.textContent = text;
    if (name) found.className = name;
    return found;
  };
  const figure = element("figure", undefined, "mask"), told = element("p", "Choose a row to read what its slot sees and predicts.");
  told.setAttribute("aria-live", "polite");
  const title = drawing.tower === "x" ? drawing.title : `${drawing.title}: ${drawing.tower}`;
  const legend = element("figcaption", title);
  for (const kind of new Set(kinds)) legend.append(" ", element("span", kind, `kind ${kind}`));

  const table = element("table"), head = table.createTHead(), body = table.createTBody();
  const rowOf = (name, cells) => {
    const row = head.insertRow(), th = element("th", name);
    th.scope = "row";
    row.append(th, ...cells.map(cell => element("td", cell)));
  };
  for (const [name, cells] of Object.entries(fields)) rowOf(name === "now" ? "at" : name, cells);
  rowOf("label", labels);
  rowOf("token", names);

  const say = q => {
    const place = Object.entries(fields).map(([name, row]) => `${name === "now" ? "time" : name} ${row[q]}`);
    const predicts = labels[q] ? ` It predicts ${labels[q]}.` : "";
    const seen = sees[q].length === names.length ? "every slot" : sees[q].map(k => names[k]).join(" ");
    return `${names[q]} (${place.join(", ")}) sees ${seen}.${predicts}`;
  };
  const rows = names.map((name, q) => {
    const row = body.insertRow(), th = element("th", name), own = new Set(sees[q]);
    th.scope = "row";
    row.append(th, ...names.map((_, k) => element("td", "", own.has(k) ? kinds[k] : "")));
    row.tabIndex = q ? -1 : 0;
    row.setAttribute("aria-label", say(q));
    return row;
  });
  const choose = q => {
    for (const row of rows) {
      row.classList.toggle("chosen", row === rows[q]);
      row.tabIndex = row === rows[q] ? 0 : -1;
    }
    told.textContent = say(q);
  };
  rows.forEach((row, q) => {
    row.addEventListener("mouseenter", () => choose(q));
    row.addEventListener("click", () => row.focus());
    row.addEventListener("focus", () => choose(q));
    row.addEventListener("keydown", event => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!step) return;
      event.preventDefault();
      rows[Math.min(Math.max(q + step, 0), rows.length - 1)].focus();
    });
  });
  const scroll = element("div"), more = element("p", "The table is wider than the page: scroll it sideways.", "more");
  scroll.append(table);
  figure.append(legend, more, scroll, told);
  new ResizeObserver(() => { more.hidden = scroll.scrollWidth <= scroll.clientWidth; }).observe(scroll);
  return figure;
}
