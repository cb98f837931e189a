"use strict";

/** An element. Texts are never read as HTML. */
function made(tag, text, name) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  if (name) found.className = name;
  return found;
}

/** Rows of texts or elements under their heads; the last column has numbers. */
function table(caption, heads, rows) {
  const found = made("table"), top = found.createTHead().insertRow(), body = found.createTBody();
  const last = heads.length - 1;
  if (caption) found.createCaption().textContent = caption;
  heads.forEach((head, i) => {
    const cell = made(head ? "th" : "td", head, i === last ? "number" : "");  // bars have no head
    if (head) cell.scope = "col";
    top.append(cell);
  });
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach((cell, i) => {
      const found = made("td", undefined, i === last ? "number" : "");
      found.append(cell);
      row.append(found);
    });
  }
  return found;
}

const percent = share => `${(100 * share).toFixed(share > 0.01 && share < 0.99 ? 1 : 2)} %`;

let groups = 0;

/** The probability of a token of an output, on average: the geometric mean. */
const ofToken = ({token_log_probs: gains}) =>
  gains.length ? Math.exp(gains.reduce((sum, gain) => sum + gain, 0) / gains.length) : 0;

/** How the model's preference divides between the outputs that are shown. */
function shares(outputs) {
  // those that are ranked as texts have the score of one, and count half as much as what fills blanks
  const liked = outputs.map(({score, log_prob}) => score === log_prob ? score : score + log_prob / 2);
  const highest = Math.max(...liked);
  const each = liked.map(one => Math.exp(one - highest)), sum = each.reduce((a, b) => a + b, 0);
  return each.map(one => one / sum);
}

/** A text whose words are marked where they differ from those of another, the first one. */
function differing(text, first) {
  const a = first.split(/(\s+)/), b = text.split(/(\s+)/), found = made("span");
  const most = Array.from({length: a.length + 1}, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    most[i][j] = a[i] === b[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  }
  for (let i = 0, j = 0; j < b.length;) {
    if (i < a.length && a[i] === b[j]) { found.append(b[j++]); i++; }
    else if (i < a.length && most[i + 1][j] >= most[i][j + 1]) i++;
    else found.append(b[j].trim() ? made("mark", b[j++], "other") : b[j++]);
  }
  return found;
}

/** A text with the words marked that stand where `source` has blanks; of a long one the surroundings. */
function filled(text, source, blank, whole) {
  const parts = source.split(blank), escaped = parts.map(part => part.trim().replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const found = made("span"), match = text.match(new RegExp(`^\\s*${escaped.join("([^]*?)")}\\s*$`, "d"));
  if (!match) return text;
  const around = 60;
  let at = 0;
  match.indices.slice(1).forEach(([start, end]) => {
    const between = text.slice(at, start), lead = text.slice(start, end).match(/^\s*/)[0].length;
    const short = !whole && between.length > 2 * around;
    found.append(short ? `${at ? `${between.slice(0, around)} ` : ""}… ${between.slice(-around)}` : between);
    found.append(text.slice(start, start + lead), made("mark", text.slice(start + lead, end).trimEnd()));
    found.append(text.slice(start, end).match(/\s*$/)[0]);
    at = end;
  });
  const rest = text.slice(at);
  found.append(!whole && rest.length > around ? `${rest.slice(0, around)} …` : rest);
  return found;
}

/** Outputs with a bar for each; of those that have it, the alignment of the one that is chosen. */
function alternatives(outputs, {bar, about, head = "Probability", written = output => output.text}) {
  const place = made("div"), group = `outputs-${groups++}`;
  const cells = outputs.map((output, i) => {
    const text = written(output, i);
    if (!output.attention?.length) return text;
    const label = made("label"), radio = made("input");
    Object.assign(radio, {type: "radio", name: group, checked: i === 0});
    radio.addEventListener("change", () => place.replaceChildren(alignment(output)));
    if (i === 0) place.append(alignment(output));
    label.append(radio, text);
    return label;
  });
  const rows = outputs.map((output, i) => {
    const meter = made("meter"), number = made("span", percent(bar[i]));
    meter.value = bar[i];
    meter.setAttribute("aria-hidden", "true");  // the number stands beside it
    number.title = `score ${output.score.toFixed(3)}, log-probability ${output.log_prob.toFixed(3)}`;
    return [cells[i], meter, number];
  });
  return [table(about, ["Output", "", head], rows), place];
}

/** Tokens as they stand in a text: a mark or, in other vocabularies, a token of its own begins a word. */
function spelled(tokens) {
  const marks = tokens.some(token => /^[▁Ġ]/.test(token));
  const own = token => token.startsWith("##") ? token.slice(2) : ` ${token}`;
  return tokens.map(token => marks ? token.replace(/^[▁Ġ]/, " ") : own(token));
}

/** The tokens of an output; choosing one colours those of the source by their weight. */
function alignment({tokens, attention, source_tokens}) {
  const figure = made("figure", undefined, "alignment"), told = made("p");
  const about = "Choose a token of the output to see which tokens of the source it looked at.";
  const source = made("p", undefined, "source"), output = made("div", undefined, "output");
  const from = spelled(source_tokens), to = spelled(tokens.slice(0, attention.length));
  const heat = from.map(text => made("span", text)), buttons = to.map(text => made("button", text));
  const choose = i => {
    const row = attention[i], highest = Math.max(...row);
    heat.forEach((span, k) => span.style.setProperty("--weight", row[k] / highest));
    buttons.forEach((button, k) => {
      button.setAttribute("aria-pressed", k === i);
      button.tabIndex = k === i ? 0 : -1;
    });
    const order = [...row.keys()].sort((a, b) => row[b] - row[a]).slice(0, 4);
    const most = order.map(k => `${from[k].trim()} ${percent(row[k])}`);
    told.textContent = `${to[i].trim()} looks at ${most.join(", ")}.`;
  };
  buttons.forEach((button, i) => {
    button.type = "button";
    for (const kind of ["mouseenter", "focus", "click"]) button.addEventListener(kind, () => choose(i));
    button.addEventListener("keydown", event => {
      const next = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: buttons.length - 1}[event.key];
      if (next === undefined) return;
      event.preventDefault();
      buttons[next]?.focus();
    });
  });
  output.setAttribute("role", "toolbar");
  output.setAttribute("aria-label", "Tokens of the output");
  told.setAttribute("aria-live", "polite");
  source.append(...heat);
  output.append(...buttons);
  figure.append(made("figcaption", about), output, source, told);
  choose(0);
  return figure;
}

/** Labels with a bar for the probability of each, the most probable first. */
function bars(probabilities, names = {}) {
  const sorted = Object.entries(probabilities).sort(([, a], [, b]) => b - a), shown = sorted.slice(0, 20);
  const rows = shown.map(([label, share]) => {
    const bar = made("meter");
    bar.value = share;
    bar.setAttribute("aria-hidden", "true");  // the number stands beside it
    return [names[label] ?? label, bar, percent(share)];
  });
  const more = sorted.length - shown.length;
  return table(more ? `${more} more labels are less probable.` : "", ["Label", "", "Probability"], rows);
}

/** Words in the colours of their tags. */
function tagged(words, {tags, probabilities}, labels) {
  const kind = tag => tag.replace(/^[BIESLU]-/, ""), text = made("p", undefined, "tags");
  const kinds = [...new Set([...labels, ...tags].map(kind))].filter(one => one !== "O");
  tags.forEach((tag, i) => {
    const word = made(tag === "O" ? "span" : "mark", words[i]);
    if (tag !== "O") {
      word.style.setProperty("--hue", 360 * kinds.indexOf(kind(tag)) / kinds.length);
      word.append(" ", made("small", `${tag} ${percent(probabilities[i])}`));
    }
    text.append(word, " ");
  });
  if (!text.querySelector("mark")) text.append(made("span", "No word has a tag.", "note"));
  return text;
}

/** A passage with the answer marked in it. */
function marked(passage, {answer, start, probability}) {
  const text = made("p");
  if (start < 0) text.append(passage);
  else {
    // the server counts characters, this language pairs of bytes
    const chars = [...passage], stop = start + [...answer].length;
    const part = (a, b) => chars.slice(a, b).join("");
    text.append(part(0, start), made("mark", part(start, stop)), part(stop));
  }
  const said = answer ? `Answer: ${answer}` : "The passage has no answer";
  return [made("p", `${said} (probability ${percent(probability)})`), text];
}
