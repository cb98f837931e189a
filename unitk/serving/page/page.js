"use strict";

const error = document.getElementById("error");

/** The answer to a request; throws what the server says is wrong. */
async function ask(path, body, signal) {
  const how = body && {
    method: "POST", body: JSON.stringify(body), signal,
    headers: {"content-type": "application/json"},
  };
  const response = await fetch(path, how);
  if (!response.ok) throw new Error((await response.json()).error);
  return response;
}

function made(tag, text, name) {
  const found = document.createElement(tag);
  if (text !== undefined) found.textContent = text;
  if (name) found.className = name;
  return found;
}

/** Rows of [text, number] as a table; texts are never read as HTML. */
function table(heads, rows) {
  const found = made("table"), top = found.createTHead().insertRow(), body = found.createTBody();
  heads.forEach((head, i) => {
    const cell = made("th", head, i ? "number" : "");
    cell.scope = "col";
    top.append(cell);
  });
  for (const [text, number] of rows) {
    const row = body.insertRow();
    row.append(made("td", text));
    row.append(made("td", number, "number"));
  }
  return found;
}

const alternatives = outputs =>
  table(["text", "score"], outputs.map(one => [one.text, one.score.toFixed(3)]));

const parts = text => text.split(/[\t|]/).map(part => part.trim());

/** Sends a panel's form; a second press waits for the first. */
function panel(id, submit) {
  const section = document.getElementById(id), form = section.querySelector("form");
  section.hidden = false;
  form.addEventListener("submit", async event => {
    event.preventDefault();
    const button = form.querySelector("button"), answer = section.querySelector(".answer");
    const given = Object.fromEntries(new FormData(form));
    for (const input of form.querySelectorAll("input[type=number]")) {
      given[input.name] = Number(input.value);
    }
    button.disabled = true;
    error.textContent = "";
    try {
      await submit(given, answer, section);
    } catch (wrong) {
      error.textContent = wrong.message;
    }
    button.disabled = false;
  });
  return section;
}

function fill(task, blank) {
  const section = panel("fill", async ({text, nbest}, answer) => {
    const body = {task, texts: [text], nbest, beam: Math.max(nbest, 4), max_len: 8};
    const {outputs} = await (await ask("infill", body)).json();
    answer.replaceChildren(alternatives(outputs[0]));
  });
  section.querySelector(".blank").textContent = blank;
  const area = section.querySelector("textarea");
  area.value = area.value.replaceAll("[MASK]", blank);
}

function goOn(task) {
  panel("continue", async ({text, ...options}, answer) => {
    const body = {task, texts: [text], sampling: true, sampling_topp: 0.95, stream: true, ...options};
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
}

async function write(task, source, options, answer) {
  const body = {task, texts: [source], nbest: options.beam, ...options};
  const {outputs} = await (await ask("generate", body)).json();
  answer.replaceChildren(alternatives(outputs[0]));
}

function question(task) {
  const section = panel("ask", ({text, answer: marked}, answer) =>
    write(task, [marked, text], {beam: 4, max_len: 32, no_repeat_ngram_size: 3}, answer));
  const area = section.querySelector("textarea");
  area.addEventListener("select", () => {
    const marked = area.value.slice(area.selectionStart, area.selectionEnd).trim();
    if (marked) section.querySelector("[name=answer]").value = marked;
  });
}

function predict(task) {
  panel("predict", async ({text}, answer) => {
    const {predictions} = await (await ask("predict", {task, texts: [parts(text)]})).json();
    const shown = one => typeof one === "number" ? one.toFixed(4) : JSON.stringify(one);
    const rows = Object.entries(predictions[0]).map(([name, one]) => [name, shown(one)]);
    answer.replaceChildren(table(["", "prediction"], rows));
  });
}

function walk(task) {
  panel("walk", async ({from, to}, answer, section) => {
    const body = {task, texts: [from, to], steps: 9, beam: 1};
    const {outputs} = await (await ask("latent/interpolate", body)).json();
    const slider = section.querySelector("input[type=range]");
    const show = () => {
      const text = outputs[slider.value][0].text;
      slider.setAttribute("aria-valuetext", text);
      answer.textContent = text;
    };
    slider.oninput = show;
    slider.parentElement.hidden = false;
    show();
  });
}

function show(tasks) {
  const section = panel("show", async ({task, text, target, seed}, answer) => {
    const source = tasks[task].verbs.includes("predict") ? parts(text) : text;
    const body = {task, texts: [source], seed, ...(target && {target})};
    const {towers} = await (await ask("show", body)).json();
    answer.replaceChildren(...towers.map(drawMask));
  });
  section.querySelector("select").append(...Object.keys(tasks).map(name => new Option(name)));
}

async function start() {
  const {model, tasks} = await (await ask("model")).json();
  document.getElementById("about").textContent = `${model}: ${Object.keys(tasks).join(", ")}`;
  const first = holds => Object.keys(tasks).find(name => holds(tasks[name]));
  const can = verb => first(task => task.verbs.includes(verb));
  const filling = can("infill"), going = first(task => task.continues && !task.blank) ?? first(task => task.continues);
  const writing = first(task => task.pairs);
  if (filling) fill(filling, tasks[filling].blank);
  if (going) goOn(going);
  if (writing) {
    question(writing);
    panel("write", ({text, ...options}, answer) => write(writing, parts(text), options, answer));
  }
  if (can("predict")) predict(can("predict"));
  if (can("latent/interpolate")) walk(can("latent/interpolate"));
  show(tasks);
}

start().catch(wrong => { error.textContent = wrong.message; });
