"use strict";

/**
 * The losses of models side by side (`unitk.comparison.side_by_side.record`): a table, and texts
 * whose words have the colour of one model's loss, or of the difference between two. Choosing a
 * word says what it costs each model.
 */
function drawComparison(found) {
  const {models, texts} = found;
  const element = (tag, text) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const bits = value => (value / Math.LN2).toFixed(2);
  const page = element("div"), table = element("table"), head = table.createTHead().insertRow();
  page.append(element("h1", "Words side by side"));
  for (const title of ["model", "kind", "bits per byte", "standard error"]) head.append(element("th", title));
  for (const one of models) {
    const row = table.insertRow();
    const error = one.error === null ? "" : one.error.toFixed(4);
    for (const cell of [one.name, one.kind, one.bits.toFixed(4), error]) row.append(element("td", cell));
  }
  page.append(table);
  if (new Set(models.map(one => one.kind)).size > 1) {
    page.append(element("p", "Values of different kinds must not be ranked against each other."));
  }

  const label = element("label", "Colour: "), choice = element("select");
  const ways = models.map((one, i) => [`loss of ${one.name}`, costs => costs[i] / 12]);
  models.forEach((one, i) => models.forEach((other, j) => {
    if (i < j) ways.push([`${one.name} minus ${other.name}`, costs => (costs[i] - costs[j]) / 6]);
  }));
  ways.forEach(([name], i) => choice.append(new Option(name, i)));
  if (ways.length > models.length) choice.value = models.length; // the first difference
  label.append(choice);
  page.append(element("p", "Blue: cheap, or cheaper for the first model. Red: dear, or dearer."), label);

  const beside = element("p", "Choose a word."), words = [];
  beside.className = "beside";
  beside.setAttribute("aria-live", "polite");
  let chosen;
  texts.forEach((text, number) => {
    const part = element("section");
    part.className = "text";
    part.append(element("h2", `Text ${number + 1}`));
    for (const [word, costs] of text) {
      const made = element("button", word);
      made.className = "word";
      made.addEventListener("click", () => {
        chosen?.classList.remove("chosen");
        chosen = made;
        made.classList.add("chosen");
        const each = models.map((one, i) => `${one.name} ${bits(costs[i])}`);
        beside.textContent = `${word}: ${each.join(", ")} bits`;
      });
      words.push([made, costs]);
      part.append(made, " ");
    }
    page.append(part);
  });
  const paint = () => {
    const [, way] = ways[Number(choice.value)], one = Number(choice.value) < models.length;
    for (const [made, costs] of words) {
      const value = Math.max(-1, Math.min(1, one ? 2 * way(costs) - 1 : way(costs)));
      const hue = value > 0 ? 10 : 215;
      made.style.background = `hsl(${hue} 85% ${95 - 35 * Math.abs(value)}%)`;
    }
  };
  choice.addEventListener("change", paint);
  paint();
  page.append(beside);
  return page;
}
