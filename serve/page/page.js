// Puts the page together: the case's form, the examples, the key, and who judges here.

import { byId, digits, element } from "./dom.js";
import { judge, stop } from "./episode.js";
import { more, show } from "./past.js";
import { ask, keepKey, key } from "./service.js";

const OPTION = /^([\p{L}\p{N}]{1,3})[.):]\s*(\S.*)$/u;

/** The case that the form holds; options that cannot be read are said at their field. */
function written() {
  const options = {};
  let unread = "";
  for (const line of lines("options")) {
    const [, letter, text] = OPTION.exec(line) ?? [];
    if (!letter) unread ||= `Not an option: “${line.slice(0, 40)}”. Write “A. text”.`;
    else if (letter in options) unread ||= `Option ${letter} is there twice.`;
    else options[letter] = text;
  }
  byId("options").setCustomValidity(unread);
  const question = { text: byId("question").value.trim() };
  if (Object.keys(options).length) question.options = options;
  const trace = byId("steps").checked ? { steps: lines("trace") } : { text: byId("trace").value.trim() };
  return { id: "page", question, trace };
}

const lines = (id) =>
  byId(id)
    .value.split("\n")
    .map((line) => line.trim())
    .filter(Boolean);

/** Put a case into the form, in either form that people write. */
function fillIn({ question, options, trace }) {
  const text = typeof question === "string" ? question : question.text;
  const choices = Object.entries((typeof question === "string" ? options : question.options) ?? {});
  const steps = Array.isArray(trace) ? trace : trace.steps;
  byId("question").value = text;
  byId("options").value = choices.map(([letter, choice]) => `${letter}. ${choice}`).join("\n");
  byId("steps").checked = Boolean(steps);
  byId("trace").value = steps ? steps.join("\n") : (trace.text ?? trace);
  byId("options").setCustomValidity("");
}

/** A case in pasted JSON, or null. */
function caseIn(text) {
  try {
    const found = JSON.parse(text);
    const one = found.case ?? found;
    const whole = (one.question?.text ?? one.question) && (one.trace?.text ?? one.trace);
    return whole ? one : null;
  } catch {
    return null;
  }
}

async function examples() {
  for (const one of await ask("/page/cases.json")) {
    const button = element("button", "example", one.id.replaceAll("-", " "));
    button.type = "button";
    button.addEventListener("click", () => {
      fillIn(one);
      byId("judge-it").focus();
    });
    byId("examples").append(button);
  }
}

/** Say who judges here and how good it is known to be. */
async function introduce() {
  const line = byId("judge");
  try {
    const info = await ask("/info");
    byId("version").textContent = info.version;
    const known = measured(info.quality);
    const quality = known ? `${known}; 0.5 is chance.` : "Its quality was not measured. Do not rely on its verdicts.";
    line.replaceChildren(element("strong", null, info.model), ` judges here. ${quality}`);
  } catch (error) {
    const unknown = "Which judge this is, and how good it is, is not shown";
    if (error.status === 401) line.textContent = `${unknown} without a key.`;
    else if (error.status === 403) line.textContent = `${unknown} to this key.`;
    else line.textContent = `${unknown}: ${error.title ?? error.message}.`;
  }
}

/** What was measured, said once for each data set. */
function measured(quality) {
  const sets = new Map();
  for (const { metric, value, low, high, dataset, n } of quality) {
    const where = [dataset && `on ${dataset}`, n && `n\u00a0=\u00a0${n}`].filter(Boolean).join(", ");
    const interval = typeof low === "number" ? ` [${digits(low)}, ${digits(high)}]` : "";
    sets.set(where, [...(sets.get(where) ?? []), `${metric} ${digits(value)}${interval}`]);
  }
  return [...sets].map(([where, values]) => [...values, where].filter(Boolean).join(", ")).join("; ");
}

/** Show what was just judged among the past ones, unless somebody reads there. */
function renew() {
  if (!byId("past-list").querySelector("details[open]")) show();
}

function askForKey({ status }) {
  if (status !== 401) return;
  byId("access").open = true;
  byId("key").focus();
}

byId("question").addEventListener("paste", (event) => {
  const pasted = caseIn(event.clipboardData.getData("text"));
  if (!pasted) return;
  event.preventDefault();
  fillIn(pasted);
});

byId("options").addEventListener("input", () => byId("options").setCustomValidity(""));

byId("judge-it").addEventListener("click", () => written()); // before the browser looks at what is valid

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const body = { case: written() };
  if (byId("seed").value) body.seed = Number(byId("seed").value);
  judge(body, askForKey).then(renew);
});

byId("stop").addEventListener("click", stop);

byId("filters").addEventListener("submit", (event) => {
  event.preventDefault();
  show();
});

byId("older").addEventListener("click", more);

function useKey(value) {
  keepKey(value);
  byId("key").value = value;
  introduce();
  show();
}

byId("key").value = key();
byId("key").addEventListener("change", () => useKey(byId("key").value.trim()));
byId("access-form").addEventListener("submit", (event) => event.preventDefault());
byId("forget").addEventListener("click", () => useKey(""));

examples();
introduce();
show();
