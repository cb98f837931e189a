"use strict";

/**
 * The losses of models side by side (`unitk.comparison.side_by_side.page_record`): a table with
 * intervals, the words on which two models differ most, and texts whose words have the colour of a
 * model's loss, or of the difference between two. Choosing a word shows what it costs each model.
 */
function drawComparison(found) {
  const {models, texts} = found, names = shortNames(models.map(one => one.name));
  const page = make("div"), ways = waysToColour(models, names), words = [];
  page.append(make("h1", "Words side by side"), make("p", aboutOf(found), "quiet"));
  const table = make("div", null, "scroll");
  table.append(drawTable(models, names));
  page.append(table);
  for (const note of notesOf(models)) page.append(make("p", note, "quiet"));

  page.append(make("h2", "Who finds which word hard"));
  const choice = make("select"), label = make("label", "Colour "), controls = make("div", null, "controls");
  ways.forEach((way, i) => choice.append(new Option(way.name, i)));
  choice.value = Math.max(ways.findIndex(way => way.pair && way.alike), 0);
  label.append(choice);
  const scale = make("span", null, "scale"), warning = make("p", "", "warn"), lists = make("div", null, "lists");
  controls.append(label, scale);
  page.append(controls, warning, lists);

  const panel = make("aside", null, "beside"), inside = make("div");
  panel.setAttribute("aria-live", "polite");
  inside.append(make("p", "Choose a word, or walk with the arrow keys: its cost in each model stands here.", "quiet"));
  panel.append(inside);
  const most = highest(texts.flatMap(text => text.words.flatMap(([, costs]) => costs)));
  let chosen = null;
  const choose = number => {
    if (chosen !== null) words[chosen].node.classList.remove("chosen");
    chosen = number;
    const {node, word, costs} = words[number];
    node.classList.add("chosen");
    node.focus({preventScroll: true});
    const box = node.getBoundingClientRect(), free = innerHeight - panel.offsetHeight - 40;
    if (box.top < 80 || box.bottom > free) node.scrollIntoView({block: "center"});
    inside.replaceChildren(make("strong", word), ...models.map((one, i) => {
      const row = make("div", null, "bar"), bar = make("i");
      bar.style.width = `${Math.min(100, 100 * costs[i] / most)}%`;
      row.append(make("span", names[i]), make("span", `${bits(costs[i])} bits`), bar);
      return row;
    }));
  };
  texts.forEach((text, number) => {
    const part = make("section", null, "text"), body = make("div");
    const own = models.map((one, i) => `${names[i]} ${text.bits[i].toFixed(2)}`);
    part.append(make("h3", `Text ${number + 1}: ${own.join(", ")} bits per byte`), body);
    for (const [word, costs] of text.words) {
      const at = words.length, node = make("span", word, "word");
      node.tabIndex = at ? -1 : 0; // one stop for Tab; arrows go from word to word
      node.setAttribute("role", "button");
      node.title = models.map((one, i) => `${names[i]} ${bits(costs[i])}`).join("\n");
      node.addEventListener("click", () => choose(at));
      node.addEventListener("focus", () => chosen === at || choose(at));
      words.push({node, word, costs});
      body.append(node, " ");
    }
    page.append(part);
  });
  page.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step || !event.target.classList.contains("word")) return;
    event.preventDefault();
    choose(Math.min(words.length - 1, Math.max(0, chosen + step)));
  });

  const paint = () => {
    const way = ways[Number(choice.value)], values = words.map(({costs}) => way.of(costs));
    const top = highest(values.map(Math.abs));
    words.forEach(({node}, i) => {
      const strength = 0.6 * Math.min(1, Math.abs(values[i]) / top);
      node.style.background = `rgb(var(--${values[i] > 0 ? "dear" : "cheap"}) / ${strength.toFixed(3)})`;
    });
    scale.className = `scale ${way.pair ? "two" : "one"}`;
    const [low, high] = way.pair ? way.pair.map(i => `harder for ${names[i]}`) : ["0", ""];
    scale.replaceChildren(make("span", way.pair ? `${bits(top)} bits ${high}` : low), make("i"),
                          make("span", `${bits(top)} bits${way.pair ? ` ${low}` : " and more"}`));
    warning.hidden = !way.pair || way.alike;
    warning.textContent = "These two values are of different kinds. Their difference tells where they differ, not which model is better.";
    lists.replaceChildren(...(way.pair ? way.pair.map((one, side) => hardest(one, side ? -1 : 1, values)) : [hardest(null, 1, values)]));
  };
  const hardest = (model, sign, values) => {
    const part = make("div"), list = make("ol");
    const order = values.map((value, i) => [sign * value, i]).sort((a, b) => b[0] - a[0]).slice(0, 8);
    part.append(make("span", model === null ? "The hardest words" : `Harder for ${names[model]}, in bits`, "quiet"), list);
    for (const [value, i] of order) {
      if (value <= 0) break;
      const item = make("li"), button = make("button");
      button.append(make("b", `${model === null ? "" : "+"}${bits(value)}`), words[i].word);
      button.addEventListener("click", () => choose(i));
      item.append(button);
      list.append(item);
    }
    return part;
  };
  choice.addEventListener("change", paint);
  paint();
  page.append(panel);
  return page;
}

function make(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** Nats as bits. */
function bits(nats) {
  return (nats / Math.LN2).toFixed(2);
}

/** What nearly all values are below: one extreme word does not pale the others. */
function highest(values) {
  const sorted = values.slice().sort((a, b) => a - b);
  return Math.max(sorted[Math.floor(0.98 * (sorted.length - 1))] ?? 0, 1e-9);
}

/** Names without the folders that all of them begin with. */
function shortNames(names) {
  const parts = names.map(name => name.split("/"));
  let same = 0;
  while (parts.every(part => part.length > same + 1 && part[same] === parts[0][same])) same += 1;
  return parts.map(part => part.slice(same).join("/"));
}

function aboutOf({data, documents, bytes, texts}) {
  const shown = texts.length < documents ? ` The first ${texts.length} are shown below.` : "";
  return `${data}: ${documents.toLocaleString("en")} document${documents === 1 ? "" : "s"}, ${bytes.toLocaleString("en")} bytes.${shown}`;
}

function notesOf(models) {
  const kinds = new Set(models.map(one => one.kind)), notes = [];
  if (kinds.size > 1) notes.push("Values of different kinds are not ranked against each other: only exact ones are probabilities.");
  if (kinds.has("bound")) notes.push("bound: the model may be better than its value, never worse.");
  if (kinds.has("pseudo")) notes.push("pseudo: each token is predicted from all others, so that it is no probability of a text.");
  if (models.some(one => one.seeds < 3)) notes.push("Intervals hold 95 % of draws of documents. With fewer than three seeds of a model they say nothing of other seeds.");
  return notes;
}

/** Ways to colour words: the loss of each model, and the difference between each two. */
function waysToColour(models, names) {
  const ways = models.map((one, i) => ({name: `loss of ${names[i]}`, of: costs => costs[i]}));
  models.forEach((one, i) => models.forEach((other, j) => {
    if (i < j) ways.push({name: `${names[i]} minus ${names[j]}`, pair: [i, j], alike: one.kind === other.kind, of: costs => costs[i] - costs[j]});
  }));
  return ways;
}

function drawTable(models, names) {
  const table = make("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  const lows = models.map(one => one.low ?? one.bits), highs = models.map(one => one.high ?? one.bits);
  const from = Math.min(...lows), to = Math.max(...highs);
  for (const title of ["model", "kind", "seeds", "bits per byte", "95 % of draws", "", "behind the best of its kind"]) head.append(make("th", title));
  const order = ["exact", "bound", "pseudo"];
  const rows = models.map((one, i) => ({...one, short: names[i]}));
  rows.sort((a, b) => order.indexOf(a.kind) - order.indexOf(b.kind) || a.rank - b.rank);
  for (const one of rows) {
    const row = body.insertRow(), range = one.low === null ? "" : `${one.low.toFixed(3)} to ${one.high.toFixed(3)}`;
    const behind = one.rank === 1 ? "" : `${one.behind.toFixed(3)}${one.behind_low === null ? "" : ` (${one.behind_low.toFixed(3)} to ${one.behind_high.toFixed(3)})`}`;
    row.append(make("td", one.short, "name"), make("td", one.kind), make("td", one.seeds), make("td", one.bits.toFixed(4)), make("td", range));
    const cell = row.insertCell();
    cell.append(drawInterval(one, from, to));
    row.append(make("td", behind));
    row.firstChild.title = one.name;
  }
  return table;
}

/** A dot with its interval, on the scale that all rows share. */
function drawInterval(one, from, to) {
  const space = "http://www.w3.org/2000/svg", wide = 150, svg = document.createElementNS(space, "svg");
  const place = value => 5 + (wide - 10) * (to > from ? (value - from) / (to - from) : 0.5);
  svg.setAttribute("width", wide);
  svg.setAttribute("height", 14);
  svg.setAttribute("aria-hidden", "true");
  const draw = (tag, values) => {
    const node = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(values)) node.setAttribute(name, value);
    svg.append(node);
  };
  draw("line", {class: "grid", x1: 0, x2: wide, y1: 7, y2: 7});
  if (one.low !== null) draw("line", {x1: place(one.low), x2: place(one.high), y1: 7, y2: 7});
  draw("circle", {cx: place(one.bits), cy: 7, r: 4});
  return svg;
}
