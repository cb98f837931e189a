"use strict";

const error = document.getElementById("error"), chooser = document.getElementById("models");
let model;  // the chosen one: its name, what it is, its tasks and limits
let models = [];
const working = new Set();  // what ends each request that is not answered

/** The answer to a request; throws what the server says is wrong. */
async function ask(path, body, signal) {
  const how = body && {
    method: "POST", body: JSON.stringify(models.length > 1 ? {model: model.model, ...body} : body),
    headers: {"content-type": "application/json"}, signal,
  };
  const response = await fetch(path, how).catch(wrong => {
    if (wrong.name === "AbortError") throw wrong;
    throw new Error("The server does not answer. Does it still run?");
  });
  if (!response.ok) {
    const said = await response.json().catch(() => ({}));  // a proxy may answer instead
    // addresses of OpenAI's API say it in the shape of that API
    throw new Error(said.error?.message ?? said.error ?? `The answer has the status ${response.status}. Try again later.`);
  }
  return response;
}

const answered = async (path, body, signal) => (await ask(path, body, signal)).json().catch(wrong => {
  throw wrong.name === "SyntaxError" ? new Error("Something else answers than unitk's server, such as a proxy.") : wrong;
});

/** What a stream of OpenAI's API grows by, piece by piece. */
async function* pieces(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    for (const line of lines.filter(one => one.startsWith("data: {"))) {
      const {choices, error} = JSON.parse(line.slice("data: ".length));
      if (error) throw new Error(error.message);
      yield choices[0].text;
    }
  }
}

const parts = text => text.split(/[\t|]/).map(part => part.trim());

/** The words beside a control. */
const named = control => control.closest("label").textContent.split(/[\n(;]/).map(part => part.trim()).find(Boolean);

/** A message of the server in the words of the page: the names of fields are those of its labels. */
function inWords(message, form) {
  let said = message.replace(/^texts: text \d+ has/, "The text has").replace(/^(texts|infill|text \d+): /, "");
  for (const control of form.querySelectorAll("[name]")) {
    said = said.replace(new RegExp(`\\b${control.name}\\b(?=( | must|:))`, "g"),
      control.name === "text" || control.name === "task" ? control.name : `“${named(control)}”`);
  }
  return said.replace(/^texts /, "The text ").replace(/the server allows (\d+)/, (_, most) => `the server allows ${Number(most).toLocaleString("en")}`);
}

/** A counter under a text, which says when it is longer than the server reads. */
function counter(area) {
  const count = made("small", undefined, "count");
  const show = () => {
    const most = model.limits.max_chars, length = [...area.value].length;
    count.textContent = `${length.toLocaleString("en")} of ${most.toLocaleString("en")} characters`;
    count.classList.toggle("over", length > most);
    area.setAttribute("aria-invalid", length > most);
  };
  area.after(count);
  area.addEventListener("input", show);
  area.show = show;
}

/** Copies a text; returns whether the browser did. */
async function copied(text) {
  // of another machine's page a browser has a clipboard only if it came by https
  if (navigator.clipboard) return navigator.clipboard.writeText(text).then(() => true, () => false);
  const area = made("textarea", text), before = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  before?.focus();
  return done;
}

/** What one can do with an answer. */
function tools(section, form) {
  const bar = made("p", undefined, "tools"), answer = section.querySelector(".answer");
  const tool = (text, act) => {
    const button = made("button", text, "plain");
    button.type = "button";
    button.addEventListener("click", () => act(button));
    bar.append(button, " ");
  };
  const copy = async (button, text, name) => {
    button.textContent = await copied(text) ? "Copied" : "The browser refuses";
    setTimeout(() => { button.textContent = name; }, 1500);
  };
  tool("Copy", button => copy(button, answer.best ?? answer.innerText, "Copy"));
  tool("Download", () => {
    const link = made("a"), about = {model: model.model, given: values(form), answer: answer.said};
    link.href = URL.createObjectURL(new Blob([JSON.stringify(about, null, 1)], {type: "application/json"}));
    link.download = `unitk-${section.id}.json`;
    link.click();
    URL.revokeObjectURL(link.href);
  });
  tool("Copy link", button => copy(button, linked(section.id, form), "Copy link"));
  tool("Clear", () => {
    clear(section);
    for (const one of form.querySelectorAll("textarea, input:not([type=number], [type=checkbox])")) one.value = "";
    form.querySelectorAll("textarea").forEach(area => area.show());
    form.querySelector("textarea, input").focus();
  });
  bar.hidden = true;
  section.append(bar);
}

function clear(section) {
  const answer = section.querySelector(".answer");
  answer.replaceChildren();
  answer.said = answer.best = undefined;
  section.querySelector(".tools").hidden = true;
  for (const way of section.querySelectorAll(".way")) way.hidden = true;
}

/** What is written in a form, by name; numbers as such. */
function values(form) {
  const given = Object.fromEntries(new FormData(form));
  for (const input of form.querySelectorAll("input[type=number]")) {
    if (input.name in given) given[input.name] = Number(input.value);
  }
  return given;
}

/** An address that opens the page as it is. */
function linked(id, form) {
  const query = new URLSearchParams({model: model.model, panel: id, ...values(form)});
  return `${location.origin}${location.pathname}#${query}`;
}

/** What the address of the page says, by name. */
const given = () => new URLSearchParams(location.hash.slice(1));

/** Fills in what the address of the page says. */
function restored() {
  const query = given(), [name, id] = [query.get("model"), query.get("panel")];
  if (name && name !== model.model) {
    error.textContent = `The link is for the model ${name}, which is not served here.`;
    return;
  }
  if (!id) return;
  const section = document.querySelector(`main > section#${CSS.escape(id)}:not([hidden])`);
  if (!section) {
    error.textContent = "The link is for something that this model does not do.";
    return;
  }
  const form = section.querySelector("form");
  for (const [name, value] of query) {
    const control = form.querySelector(`[name="${CSS.escape(name)}"]`);
    const known = !control?.options || [...control.options].some(one => one.value === value);
    if (control && known && control.type !== "checkbox") control.value = value;
  }
  for (const box of form.querySelectorAll("[type=checkbox]")) box.checked = query.has(box.name);
  form.querySelectorAll("textarea").forEach(area => area.show());
  section.scrollIntoView();
}

/** Sends forms, one function a panel: `submit(given, answer, signal)` is what the panel does. */
const submits = {};

function prepare(section) {
  const form = section.querySelector("form"), answer = section.querySelector(".answer"), button = form.querySelector("button");
  const stop = made("button", "Stop", "plain stop"), work = made("span", undefined, "work"), first = button.textContent;
  stop.type = "button";
  stop.hidden = true;
  work.setAttribute("role", "status");
  button.after(" ", stop, " ", work);
  form.querySelectorAll("textarea").forEach(counter);
  form.noValidate = true;
  tools(section, form);
  form.addEventListener("keydown", event => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  form.addEventListener("submit", async event => {
    event.preventDefault();
    if (button.disabled) return;  // it waits for the first
    const abort = new AbortController(), begun = Date.now(), asked = model;
    const tick = setInterval(() => { work.textContent = `working, ${Math.round((Date.now() - begun) / 1000)} s`; }, 1000);
    stop.onclick = () => abort.abort();
    working.add(abort);
    button.disabled = true;
    stop.hidden = false;
    work.textContent = "working";
    error.textContent = "";
    section.setAttribute("aria-busy", "true");
    try {
      check(form);
      history.replaceState(null, "", linked(section.id, form));
      const kept = await submits[section.id](values(form), answer, abort.signal);
      section.querySelector(".tools").hidden = false;
      Object.assign(answer, kept);
    } catch (wrong) {
      if (wrong.name === "AbortError") {
        if (!answer.partial) clear(section);
        answer.append(made("p", "Stopped.", "note"));
      } else {
        if (answer.partial) answer.append(made("p", "The answer ends here.", "note"));
        else clear(section);  // an answer to another request
        if (asked === model) error.textContent = inWords(wrong.message, form);
      }
    }
    if (asked !== model) clear(section);  // another one was chosen meanwhile
    answer.partial = false;
    working.delete(abort);
    clearInterval(tick);
    work.textContent = "";
    stop.hidden = true;
    button.textContent = first;
    button.disabled = false;
    section.removeAttribute("aria-busy");
  });
}

/** Throws what can be known before anything is sent. */
function check(form) {
  for (const one of form.querySelectorAll("[name]:not(:disabled)")) {
    const what = one.closest("label").hidden ? "" : named(one);
    if (one.required && !one.value.trim()) throw new Error(`${what}: nothing is written there.`);
    if (one.type === "number" && what) {
      const number = Number(one.value), whole = !one.step;  // of the steps that a field has by itself
      const fits = one.value !== "" && (!whole || Number.isInteger(number));
      if (!fits || number < Number(one.min) || (one.max && number > Number(one.max))) {
        const range = one.max ? `from ${one.min} to ${one.max}` : `of at least ${one.min}`;
        throw new Error(`${what}: a ${whole ? "whole " : ""}number ${range}, not ${one.value || "nothing"}.`);
      }
    }
    const most = model.limits.max_chars, length = [...one.value].length;
    if (one.type === "textarea" && length > most) {
      throw new Error(`${what}: ${length.toLocaleString("en")} characters; the server reads at most ${most.toLocaleString("en")}.`);
    }
  }
}

/** Shows a panel and says what it does. */
function panel(id, submit, examples = []) {
  const section = document.getElementById(id), form = section.querySelector("form");
  section.hidden = false;
  submits[id] = submit;
  const place = section.querySelector(".examples");
  if (place) place.replaceChildren(...examples.length > 1 ? ["Try: "] : []);
  examples.forEach((example, i) => {
    const button = made("button", example.name ?? Object.values(example)[0], "plain example");
    const use = () => {
      for (const [name, value] of Object.entries(example)) if (name !== "name") form.querySelector(`[name=${name}]`).value = value;
      form.querySelectorAll("textarea").forEach(area => area.show());
    };
    button.type = "button";
    button.addEventListener("click", () => { use(); form.requestSubmit(); });
    if (examples.length > 1) place.append(button, " ");
    if (i === 0) use();
  });
  form.querySelectorAll("textarea").forEach(area => area.show());
  return section;
}

/** Hides the controls of a panel that have no effect; they are not sent either. */
function without(section, name) {
  for (const label of section.querySelectorAll(`label.${name}`)) {
    label.hidden = label.querySelector("input").disabled = true;
  }
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

const NO_TEXT = "The model wrote bytes that are no text. It may not know this script.";

/** The outputs that are text. A model that writes bytes may write some that are none. */
function readable(outputs) {
  const good = outputs.filter(one => !one.text.includes("\ufffd"));
  if (outputs.length && !good.length) throw new Error(NO_TEXT);
  return good;
}

/** What is kept of outputs, for copying and downloading. */
const kept = outputs => ({said: outputs.map(({text, score, log_prob}) => ({text, score, log_prob})), best: outputs[0]?.text});

const WAYS = [
  "The [MASK] sat on the [MASK].", "She opened the [MASK] and put her [MASK] on the table.",
  "The [MASK] of the city was built in the [MASK] century.", "He wrote a [MASK] to his mother.",
];

/** A blank in a text whose blanks are to be filled, as the server reads it. */
const BLANK = /\[MASK\]|\[gMASK\]|\[sMASK\]|_{2,}|\[[Mm]ask\]|<mask>|<MASK>/;

function fill(name, task, limits) {
  const blank = task.blank;
  // a decoder that fills one run of blanks has a source beside it
  const ways = task.alignment_layers ? ["The [MASK] sat on the table.", "He wrote a [MASK] to his mother."] : WAYS;
  const section = panel("fill", async ({text, beam, max_len}, answer, signal) => {
    if (!BLANK.test(text)) {
      throw new Error("There is no blank in the text. Write ___ where a word is missing, or press “Insert a blank”.");
    }
    const search = beam ? {beam, nbest: beam, max_len} : {max_len};
    const {outputs: [every]} = await answered("infill", {task: name, texts: [text], ...search}, signal);
    const outputs = readable(every), long = text.length > 300;
    const written = (one, i) => filled(one.text, text, BLANK, !long || i === 0);
    const about = "How the model's preference divides between these texts. Marked words were filled in; texts that repeat a word stand last.";
    answer.replaceChildren(...alternatives(outputs, {bar: shares(outputs), head: "Preference", about, written}));
    return kept(outputs);
  }, ways.map(text => ({text: text.replaceAll("[MASK]", blank)})));
  section.querySelector(".blank").textContent = blank;
  const area = section.querySelector("textarea");
  section.querySelector(".blanks").onclick = () => {
    area.setRangeText(blank, area.selectionStart, area.selectionEnd, "end");
    area.show();
    area.focus();
  };
  if (!task.searches) without(section, "searches");
  atMost(section, "beam", limits.max_beam);
  atMost(section, "max_len", limits.max_output);
}

function goOn(name, task, limits) {
  const beginnings = ["It was a cold night, and", "The history of France", "She looked at him and said"];
  const section = panel("continue", async ({text, max_len: max_tokens, ...options}, answer, signal) => {
    // of several draws, the best is shown when all are written; a text of any length is shown as it grows
    const best_of = options.sentences ? Math.min(task.defaults.best_of ?? 1, limits.max_beam) : 1;
    const body = {task: name, prompt: text, max_tokens, best_of, stream: true, ...options};
    if (task.defaults.sampling_topp === undefined) body.top_p = 0.95;
    const response = await ask("v1/completions", body, signal);
    answer.setAttribute("aria-busy", "true");  // a screen reader reads the whole, not each word
    let said = "";
    try {
      for await (const piece of pieces(response)) {
        said += piece;
        answer.replaceChildren(made("span", text), made("strong", said));
        answer.partial = true;
      }
    } catch (wrong) {
      if (wrong.name === "TypeError") throw new Error("The server stopped answering in the middle.");
      throw wrong;
    } finally {
      answer.removeAttribute("aria-busy");
    }
    if (said.includes("\ufffd")) throw new Error(NO_TEXT);
    if (!said.trim()) answer.replaceChildren(made("p", "The model writes nothing more.", "note"));
    return {said, best: text + said};
  }, beginnings.map(text => ({text})));
  // what is drawn from the likeliest tokens alone need not be sharpened
  if (task.defaults.sampling_topp !== undefined) section.querySelector("[name=temperature]").value = 1;
  begin(section, task);
  atMost(section, "max_len", limits.max_output);
}

async function write(name, source, {beam, ...options}, answer, signal) {
  const search = beam && {beam, nbest: beam};
  const {outputs: [every]} = await answered("generate", {task: name, texts: [source], ...search, ...options}, signal);
  const outputs = readable(every);
  const written = (one, i) => i ? differing(one.text, outputs[0].text) : one.text;
  const about = "The probability of a token, on average: how sure the model is of each word. The best output, by the model's score, stands first"
    + (outputs.length > 1 ? "; words of others that differ from it are marked." : ".");
  answer.replaceChildren(...alternatives(outputs, {bar: outputs.map(ofToken), about, written}));
  return kept(outputs);
}

/** What there is to summarise: of a sentence or two, nothing can be left out. */
const ABSTRACTS = [
  {name: "unified models", text: `Pre-trained language models either understand text or generate it. We propose a unified \
model that does both: a single Transformer whose attention masks decide which words each word can see. The model fills \
blanks, continues texts and writes summaries. Experiments on summarization and question generation show that it \
outperforms models that were trained for one task only.`},
  {name: "small batches", text: `Deep networks are usually trained with large batches, since these keep many processors \
busy. It has been observed that the networks found in this way generalize worse. We show that the loss of accuracy comes \
from the smaller number of updates rather than from the size of the batches. With a learning rate that grows with the \
batch and a longer warm-up, large batches reach the accuracy of small ones on image classification and translation.`},
  {name: "graph networks", text: `Graph neural networks aggregate the features of neighbouring nodes, but deep ones make \
all nodes alike. In this paper, we introduce a simple regularizer that keeps the distances between distant nodes constant \
from layer to layer. It adds no parameters and can be combined with any architecture. On five benchmarks of node \
classification, networks of 32 layers are as accurate as those of two.`},
];

function fromSource(name, task, limits) {
  const {parts: count, max_source, alignment_layers: layers} = task;
  const examples = count === 1 ? ABSTRACTS : [{text: "Oslo | Oslo is the capital of Norway. It was founded in 1040."}];
  const section = panel("write", ({text, ...options}, answer, signal) => {
    if (max_source) options.max_source_len = max_source;  // no more than in training
    return write(name, count === 1 ? [text] : parts(text), options, answer, signal);
  }, examples);
  // the panel may have had the words of another model
  section.querySelector("h2").textContent = count === 1 ? "Summarise or rewrite" : "Write from a source";
  section.querySelector(".what").textContent = count === 1 ? "Text" : "Source; a tab or a vertical bar separates its parts";
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

const NORWAY = "Oslo is the capital of Norway. It was founded in 1040.";
const PASSAGES = [
  {name: "Oslo", text: NORWAY, answer: "Oslo"},
  {name: "1040", text: NORWAY, answer: "1040"},
  {name: "Marie Curie", answer: "Marie Curie",
    text: "Marie Curie discovered radium in 1898. She was the first woman who won a Nobel Prize."},
  {name: "the Nile", answer: "the Nile", text: "The longest river in Africa is the Nile. It flows into the Mediterranean Sea."},
];

function question(name, task, limits) {
  let at = 0;
  const section = panel("ask", ({text, answer: chosen, ...options}, answer, signal) => {
    const place = text.startsWith(chosen, at) ? at : text.indexOf(chosen);
    const said = chosen.length > 60 ? `${chosen.slice(0, 60)}...` : chosen;
    if (place < 0) throw new Error(`Answer: “${said}” does not stand in the passage. Select words that do.`);
    if (task.alignment_layers) options.alignment_layer = 0;
    return write(name, [chosen, around(text, place, task.max_source)], options, answer, signal);
  }, PASSAGES);
  const area = section.querySelector("textarea");
  area.addEventListener("select", () => {
    const chosen = area.value.slice(area.selectionStart, area.selectionEnd);
    // all of it is selected to be replaced
    if (!chosen.trim() || chosen.trim() === area.value.trim()) return;
    at = area.selectionStart + chosen.length - chosen.trimStart().length;
    section.querySelector("[name=answer]").value = chosen.trim();
  });
  begin(section, task);
  atMost(section, "beam", limits.max_beam);
  atMost(section, "max_len", limits.max_output);
}

/** What a form of labels is asked about: the name of its text, and an example. */
const ASKED = {
  class: ["Text", "A warm and funny film with a weak end."],
  number: ["Text", "A warm and funny film with a weak end."],
  tags: ["Text; blanks separate its words", "Angela Merkel was born in Hamburg , Germany ."],
  span: ["Passage", NORWAY],
  choice: ["Text and its choices; a tab or a vertical bar separates them",
    "It began to rain. | She opened her umbrella. | She put on her sunglasses."],
};

function predict(name, task) {
  const [what, example] = ASKED[task.form];
  const several = task.form === "class" || task.form === "number" ? task.parts !== 1 : false;
  const section = panel("predict", async ({text, question}, answer, signal) => {
    const words = text.split(/\s+/).filter(Boolean), choices = parts(text).slice(1);
    const source = {tags: words, span: [question, text], choice: [parts(text)[0], ...choices]}[task.form];
    const body = {task: name, texts: [source ?? (several ? parts(text) : [text])]};
    if (task.form !== "span" && task.form !== "number") body.probabilities = true;
    const [said] = (await answered("predict", body, signal)).predictions;
    const shown = {
      tags: () => [tagged(words, said, task.labels)],
      span: () => marked(text, said),
      number: () => [table("", ["", "Value"], [["Prediction", said.value.toFixed(4)]])],
    }[task.form] ?? (() => [bars(said.probabilities, task.form === "choice" ? choices : {})]);
    answer.replaceChildren(...shown());
    return {said, best: said.answer ?? String(said.label ?? said.value ?? said.tags)};
  }, [{text: example}]);
  section.querySelector(".what").textContent = several ? `${what}; a tab or a vertical bar separates its parts` : what;
  section.querySelector(".question").hidden = task.form !== "span";
}

const ENDS = [["he is a teacher .", "where do you live ?"], ["i am a student .", "it is cold today ."], ["she likes music .", "they ran home ."]];

/** A sentence as the model's training had them: lower case, blanks around marks. */
const spaced = text => text.toLowerCase().replace(/([.,!?;:"()])/g, " $1 ").replace(/(\w)('\w)/g, "$1 $2").replace(/\s+/g, " ").trim();

function walk(name, limits) {
  const section = panel("walk", async ({from, to, steps, plain}, answer, signal) => {
    const ends = plain ? [spaced(from), spaced(to)] : [from, to];
    const body = {task: name, texts: ends, steps, beam: 1};
    const {outputs} = await answered("latent/interpolate", body, signal);
    const slider = section.querySelector("input[type=range]"), list = made("ol", undefined, "steps");
    const texts = outputs.map(([one]) => one.text);
    list.append(...texts.map(text => made("li", text)));
    const show = () => {
      slider.setAttribute("aria-valuetext", texts[slider.value]);
      [...list.children].forEach((item, i) => item.toggleAttribute("data-here", i === Number(slider.value)));
    };
    slider.max = texts.length - 1;
    slider.value = 0;
    slider.oninput = show;
    slider.parentElement.hidden = false;
    answer.replaceChildren(list);
    show();
    return {said: texts, best: texts.join("\n")};
  }, ENDS.map(([from, to]) => ({name: `${from} → ${to}`, from, to})));
  atMost(section, "steps", limits.max_texts);
}

function show(tasks) {
  const section = panel("show", async ({task, text, target, seed}, answer, signal) => {
    const {form} = tasks[task], source = form && form !== "tags" ? parts(text) : text;
    const {towers} = await answered("show", {task, texts: [source], seed, ...(target && {target})}, signal);
    answer.replaceChildren(...towers.map(drawMask));
    return {said: towers, best: towers.map(one => one.names.join(" ")).join("\n")};
  });
  section.querySelector("select").replaceChildren(...Object.keys(tasks).map(name => new Option(name)));
  if (Object.values(tasks).every(({form}) => form)) without(section, "target");  // they lay out no pairs
  const [{pairs, writes, blank}] = Object.values(tasks);
  // seq2seq learns from pairs alone
  section.querySelector("[name=target]").value = pairs || (writes && !blank) ? "a fox and a dog" : "";
}

/** What the model is, at the top of the page. */
function introduce({model: name, about, tasks}, replaced) {
  const place = document.getElementById("card"), facts = [], names = Object.keys(tasks);
  const said = about.title ? `${about.title[0].toUpperCase()}${about.title.slice(1)}.` : `Trained with the task${names.length > 1 ? "s" : ""} ${names.join(" and ")}.`;
  document.getElementById("about").textContent = `Model ${name}. ${said}`;
  document.title = `unitk: ${name}`;
  if (about.limits) facts.push(["Limits", `${about.limits[0].toUpperCase()}${about.limits.slice(1)}`]);
  const size = [];
  if (about.parameters) size.push(`${(about.parameters / 1e6).toFixed(1)} million parameters`);
  if (about.vocabulary) size.push(`a vocabulary of ${about.vocabulary.toLocaleString("en")} tokens`);
  if (size.length) facts.push(["Size", size.join(", ")]);
  if (about.licence) facts.push(["Licence", about.licence]);
  if (about.summary) facts.unshift(["About", about.summary]);
  const list = made("dl");
  for (const [what, text] of facts) list.append(made("dt", what), made("dd", text));
  place.replaceChildren(list);
  if (replaced) place.append(made("p", "The checkpoint on disk was replaced; the server goes on with the one that it has loaded.", "note"));
}

/** Shows the panels of a model. */
function choose(name, replaced) {
  for (const abort of working) abort.abort();
  model = models.find(one => one.model === name) ?? models[0];
  const {tasks, limits} = model, names = Object.keys(tasks), first = holds => names.find(one => holds(tasks[one]));
  for (const section of document.querySelectorAll("main section")) {
    section.hidden = true;
    clear(section);
    section.querySelector("form").reset();
    for (const control of section.querySelectorAll(":disabled:not(button)")) control.closest("label").hidden = control.disabled = false;
  }
  error.textContent = "";
  chooser.value = model.model;
  introduce(model, replaced);
  const can = verb => first(task => task.verbs.includes(verb));
  // one that was fine-tuned on pairs has forgotten how to fill blanks
  const filling = first(task => task.verbs.includes("infill") && !task.pairs);
  const going = first(task => task.continues && !task.blank) ?? first(task => task.continues);
  const asking = first(task => task.pairs && task.parts !== 1), writing = first(task => task.writes);
  const predicting = can("predict"), walking = can("latent/interpolate");
  if (filling) fill(filling, tasks[filling], limits);
  if (going) goOn(going, tasks[going], limits);
  if (asking) question(asking, tasks[asking], limits);
  if (writing && writing !== asking) fromSource(writing, tasks[writing], limits);
  if (predicting) predict(predicting, tasks[predicting]);
  if (walking) walk(walking, limits);
  show(tasks);
}

async function start() {
  const [served, {replaced}] = await Promise.all([answered("models"), answered("health")]);
  models = served.models;
  [model] = models;
  document.querySelectorAll("main section").forEach(prepare);
  chooser.replaceChildren(...models.map(one => new Option(one.model)));
  document.getElementById("chooser").hidden = models.length < 2;
  chooser.addEventListener("change", () => {
    choose(chooser.value, replaced);
    history.replaceState(null, "", `#${new URLSearchParams({model: model.model})}`);
  });
  const open = () => {
    choose(given().get("model"), replaced);
    restored();
  };
  window.addEventListener("hashchange", open);  // a link that is opened here
  open();
}

start().catch(wrong => {
  document.getElementById("about").textContent = "Reload the page to try again.";
  error.textContent = wrong.message;
});
