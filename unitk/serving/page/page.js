"use strict";

const error = document.getElementById("error");

/** The answer to a request; throws what the server says is wrong. */
async function ask(path, body) {
  const how = body && {
    method: "POST", body: JSON.stringify(body), headers: {"content-type": "application/json"},
  };
  const response = await fetch(path, how).catch(() => {
    throw new Error("The server does not answer. Does it still run?");
  });
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));  // a proxy may answer instead
    throw new Error(said.error ?? `The answer has the status ${response.status}. Try again later.`);
  }
  return response;
}

const answered = async (path, body) => (await ask(path, body)).json();

const parts = text => text.split(/[\t|]/).map(part => part.trim());

/** Shows a panel and sends its form; a second press waits for the first. */
function panel(id, submit) {
  const section = document.getElementById(id), form = section.querySelector("form");
  section.hidden = false;
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const button = form.querySelector("button"), answer = section.querySelector(".answer");
    const given = Object.fromEntries(new FormData(form));
    for (const input of form.querySelectorAll("input[type=number]")) {
      if (input.name in given) given[input.name] = Number(input.value);
    }
    button.disabled = true;
    error.textContent = "";
    try {
      const empty = [...form.elements].find(one => one.required && !one.value.trim());
      if (empty) throw new Error(`${empty.labels[0].innerText.split("\n")[0].trim()}: nothing is written there.`);
      await submit(given, answer, section);
    } catch (wrong) {
      answer.replaceChildren();  // of another request
      error.textContent = wrong.message;
    }
    button.disabled = false;
  });
  return section;
}

/** Hides the controls of a panel that have no effect; they are not sent either. */
function without(section, name) {
  for (const label of section.querySelectorAll(`label.${name}`)) {
    label.hidden = label.querySelector("input").disabled = true;
  }
}

function fill(name, task, limits) {
  const section = panel("fill", async ({text, beam}, answer) => {
    const search = beam && {beam, nbest: beam, max_len: 8};
    const {outputs} = await answered("infill", {task: name, texts: [text], ...search});
    answer.replaceChildren(...alternatives(outputs[0], "Scores are log-probabilities of what fills the blanks."));
  });
  section.querySelector(".blank").textContent = task.blank;
  const area = section.querySelector("textarea");
  // a decoder that fills one run of blanks has a source beside it
  if (task.alignment_layers) area.value = "The [MASK] sat on the table.";
  area.value = area.value.replaceAll("[MASK]", task.blank);
  if (!task.searches) without(section, "searches");
  atMost(section, "beam", limits.max_beam);
}

/** Gives the fields of a panel the options of the checkpoint. One such as 1.2x+10 has no field. */
function begin(section, {defaults}) {
  for (const [name, value] of Object.entries(defaults)) {
    const input = section.querySelector(`[type=number][name=${name}]`);
    if (!input) continue;
    if (isFinite(value)) Object.assign(input, {max: Math.max(input.max, value), step: "any", value});
    else input.closest("label").hidden = input.disabled = true;
  }
}

/** Lowers the highest value of a field to the limit of the server. */
function atMost(section, name, limit) {
  const input = section.querySelector(`[name=${name}]`);
  input.max = Math.min(input.max, limit);
  input.value = Math.min(input.value, input.max);
}

function goOn(name, task, limits) {
  const section = panel("continue", async ({text, ...options}, answer) => {
    const body = {task: name, texts: [text], sampling: true, sampling_topp: 0.95, stream: true, ...options};
    const response = await ask("generate", body);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    answer.setAttribute("aria-busy", "true");  // a screen reader reads the whole, not each word
    let rest = "";
    try {
      for (let part = await reader.read(); !part.done; part = await reader.read()) {
        const lines = (rest + part.value).split("\n");
        rest = lines.pop();
        for (const line of lines.map(JSON.parse)) {
          if (line.error) throw new Error(line.error);
          const said = line.text ?? line.outputs[0][0].text;
          answer.replaceChildren(made("span", text + " "), made("strong", said));
        }
      }
    } finally {
      answer.removeAttribute("aria-busy");
    }
  });
  begin(section, task);
  atMost(section, "max_len", limits.max_output);
}

async function write(name, {defaults}, source, {beam, ...options}, answer) {
  const search = beam && {beam, nbest: beam};
  const {outputs} = await answered("generate", {task: name, texts: [source], ...search, ...options});
  const each = defaults.lenpen === undefined ? "" : ` to the power of ${defaults.lenpen}`;
  const own = /glm|unilm/.test(defaults.search) && `The search ${defaults.search} ranks by these scores.`;
  const about = own || `Scores are log-probabilities, divided by the number of tokens${each}.`;
  answer.replaceChildren(...alternatives(outputs[0], about));
}

/** What there is to summarise at first: of a sentence or two, nothing can be left out. */
const ABSTRACT = `Pre-trained language models either understand text or generate it. We propose a unified model that \
does both: a single Transformer whose attention masks decide which words each word can see. The model fills blanks, \
continues texts and writes summaries. Experiments on summarization and question generation show that it outperforms \
models that were trained for one task only.`;

function fromSource(name, task, limits) {
  const {parts: count, max_source, alignment_layers: layers} = task;
  const section = panel("write", ({text, ...options}, answer) => {
    if (max_source) options.max_source_len = max_source;  // no more than in training
    return write(name, task, count === 1 ? [text] : parts(text), options, answer);
  });
  if (count === 1) {
    section.querySelector("h2").textContent = "Summarise or rewrite";
    section.querySelector(".what").textContent = "Text";
    section.querySelector("textarea").value = ABSTRACT;
  }
  if (!task.searches) without(section, "searches");
  if (layers) section.querySelector("[name=alignment_layer]").value = layers;
  else without(section, "layers");
  section.querySelector("[name=alignment_layer]").max = layers;
  begin(section, task);
  atMost(section, "beam", limits.max_beam);
  for (const one of ["min_len", "max_len"]) atMost(section, one, limits.max_output);
}

/** The words of a passage around its answer, about as many as a source had in training. */
function around(passage, at, most) {
  const words = [...passage.matchAll(/\S+/g)], half = Math.floor(most / 3);  // of 1.5 tokens each
  if (!most || words.length <= 2 * half) return passage;
  const own = Math.max(words.findIndex(word => word.index + word[0].length > at), 0);
  const first = Math.max(Math.min(own - half, words.length - 2 * half), 0);
  const last = words[Math.min(first + 2 * half, words.length) - 1];
  return passage.slice(words[first].index, last.index + last[0].length);
}

function question(name, task, limits) {
  const {max_len = 32, no_repeat_ngram_size = 3} = task.defaults;
  const beam = Math.min(task.defaults.beam ?? 5, limits.max_beam);
  let at = 0;
  const section = panel("ask", ({text, answer: chosen}, answer) => {
    const place = text.startsWith(chosen, at) ? at : text.indexOf(chosen);
    const options = {beam, max_len: Math.min(max_len, limits.max_output), no_repeat_ngram_size};
    if (task.alignment_layers) options.alignment_layer = 0;
    return write(name, task, [chosen, around(text, place, task.max_source)], options, answer);
  });
  const area = section.querySelector("textarea");
  area.addEventListener("select", () => {
    const chosen = area.value.slice(area.selectionStart, area.selectionEnd);
    if (!chosen.trim()) return;
    at = area.selectionStart + chosen.length - chosen.trimStart().length;
    section.querySelector("[name=answer]").value = chosen.trim();
  });
}

/** What a form of labels is asked about: the name of its text, and an example. */
const ASKED = {
  class: ["Text", "A warm and funny film with a weak end."],
  number: ["Text", "A warm and funny film with a weak end."],
  tags: ["Text; blanks separate its words", "Angela Merkel was born in Hamburg , Germany ."],
  span: ["Passage", "Oslo is the capital of Norway. It was founded in 1040."],
  choice: ["Text and its choices; a tab or a vertical bar separates them",
    "It began to rain. | She opened her umbrella. | She put on her sunglasses."],
};

function predict(name, task) {
  const [what, example] = ASKED[task.form];
  const several = task.form === "class" || task.form === "number" ? task.parts !== 1 : false;
  const section = panel("predict", async ({text, question}, answer) => {
    const words = text.split(/\s+/).filter(Boolean), choices = parts(text).slice(1);
    const source = {tags: words, span: [question, text], choice: [parts(text)[0], ...choices]}[task.form];
    const body = {task: name, texts: [source ?? (several ? parts(text) : [text])]};
    if (task.form !== "span" && task.form !== "number") body.probabilities = true;
    const [said] = (await answered("predict", body)).predictions;
    const shown = {
      tags: () => [tagged(words, said, task.labels)],
      span: () => marked(text, said),
      number: () => [table("", ["", "value"], [["prediction", said.value.toFixed(4)]])],
    }[task.form] ?? (() => [bars(said.probabilities, task.form === "choice" ? choices : {})]);
    answer.replaceChildren(...shown());
  });
  section.querySelector(".what").textContent = several ? `${what}; a tab or a vertical bar separates its parts` : what;
  section.querySelector("textarea").value = example;
  if (task.form === "span") section.querySelector(".question").hidden = false;
}

function walk(name, limits) {
  panel("walk", async ({from, to}, answer, section) => {
    const body = {task: name, texts: [from, to], steps: Math.min(9, limits.max_texts), beam: 1};
    const {outputs} = await answered("latent/interpolate", body);
    const slider = section.querySelector("input[type=range]");
    const show = () => {
      const text = outputs[slider.value][0].text;
      slider.setAttribute("aria-valuetext", text);
      answer.textContent = text;
    };
    slider.max = outputs.length - 1;
    slider.oninput = show;
    slider.parentElement.hidden = false;
    show();
  });
}

function show(tasks) {
  const section = panel("show", async ({task, text, target, seed}, answer) => {
    const {form} = tasks[task], source = form && form !== "tags" ? parts(text) : text;
    const {towers} = await answered("show", {task, texts: [source], seed, ...(target && {target})});
    answer.replaceChildren(...towers.map(drawMask));
  });
  section.querySelector("select").append(...Object.keys(tasks).map(name => new Option(name)));
  if (Object.values(tasks).every(({form}) => form)) without(section, "target");  // they lay out no pairs
  const [{pairs, writes, blank}] = Object.values(tasks);
  // seq2seq learns from pairs alone
  if (pairs || (writes && !blank)) section.querySelector("[name=target]").value = "a fox and a dog";
}

async function start() {
  const [{model, tasks, limits}, {replaced}] = await Promise.all([answered("model"), answered("health")]);
  const names = Object.keys(tasks), first = holds => names.find(name => holds(tasks[name]));
  const said = `Model ${model}, trained with the task${names.length > 1 ? "s" : ""} ${names.join(" and ")}.`;
  document.getElementById("about").textContent = replaced
    ? `${said} The checkpoint on disk was replaced; the server goes on with the one that it has loaded.` : said;
  document.title = `unitk: ${model}`;
  const can = verb => first(task => task.verbs.includes(verb));
  // one that was fine-tuned on pairs has forgotten how to fill blanks
  const filling = first(task => task.verbs.includes("infill") && !task.pairs);
  const going = first(task => task.continues && !task.blank) ?? first(task => task.continues);
  const asking = first(task => task.pairs && task.parts !== 1), writing = first(task => task.writes);
  const predicting = can("predict"), walking = can("latent/interpolate");
  if (filling) fill(filling, tasks[filling], limits);
  if (going) goOn(going, tasks[going], limits);
  if (asking) question(asking, tasks[asking], limits);
  if (writing) fromSource(writing, tasks[writing], limits);
  if (predicting) predict(predicting, tasks[predicting]);
  if (walking) walk(walking, limits);
  show(tasks);
}

start().catch(wrong => { error.textContent = wrong.message; });
