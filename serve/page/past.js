// Judgments of the past, from the service's audit log.

import { byId, digits, element } from "./dom.js";
import { caseView, facts, kind, numbers, outcome, searchView, step } from "./judgment.js";
import { ask } from "./service.js";

const SOME = 20;
let next = null; // where older ones begin
let asked = 0; // what was asked for last: the answer to something before it comes too late

/** Show the newest that fit the filters. */
export const show = () => load(null);

/** Add older ones below. */
export const more = () => load(next);

async function load(before) {
  const turn = ++asked;
  const wanted = new URLSearchParams({ limit: SOME });
  for (const name of ["status", "verdict"]) if (byId(name).value) wanted.set(name, byId(name).value);
  if (before) wanted.set("before", before);
  say("Loading …");
  try {
    const page = await ask(`/judgments?${wanted}`);
    if (turn !== asked) return;
    next = page.next;
    if (!before) byId("past-list").replaceChildren();
    byId("past-list").append(...page.judgments.map(row));
    byId("older").hidden = !next;
    say(count());
  } catch (error) {
    if (turn === asked) say(words(error));
  }
}

const say = (text) => (byId("past-said").textContent = text);

function count() {
  const shown = byId("past-list").childElementCount;
  if (shown) return `${shown} shown, newest first.`;
  return next ? "None among the newest; there are older ones." : "None. Either nothing fits, or the service keeps no audit log.";
}

function words(error) {
  if (error.status === 404) return "The audit log is off: this service keeps no judgments.";
  if (error.status === 401) return "A key is needed to see judgments; enter it at the top.";
  if (error.status === 403) return "This key is not good for reading judgments.";
  return [error.title ?? "They cannot be shown", error.detail ?? error.message].filter(Boolean).join(": ");
}

function row(line) {
  const when = new Date(line.time);
  const time = element("time", null, Number.isNaN(when.valueOf()) ? "" : when.toLocaleString());
  const p = line.status === "scored" ? digits(line.p_correct) : "";
  const about = line.texts?.case.question.text ?? `case ${line.case_digest.slice(0, 12)}`;
  const inside = element("div", null);
  const details = element(
    "details",
    null,
    element(
      "summary",
      null,
      element("span", `verdict ${kind(line)}`, outcome(line)),
      element("span", "score", p),
      element("span", "about said", about),
      time,
    ),
    inside,
  );
  details.addEventListener("toggle", () => fill(inside, line), { once: true });
  return element("li", null, details);
}

async function fill(inside, line) {
  inside.replaceChildren(element("p", "hint", "Loading …"));
  try {
    inside.replaceChildren(whole(await ask(`/judgments/${encodeURIComponent(line.id)}`)));
  } catch (error) {
    inside.replaceChildren(element("p", "hint", words(error)));
  }
}

function whole(audited) {
  const { texts } = audited;
  const detail = texts?.detail ?? "";
  const steps = element("ol", "steps");
  if (texts?.reasoning) steps.append(step("Thoughts", null, element("p", "said thought", texts.reasoning)));
  audited.searches.forEach((search, index) => {
    const passages = search.passages.map((found) => ({
      ...(found.passage ?? { title: "", text: null, source: "", topic: "", corpus: "" }),
      id: found.id,
      rank: found.rank,
      score: found.score,
    }));
    steps.append(step("Search", null, searchView(texts?.queries[index] ?? null, passages, search.omitted)));
  });
  const origin = [`asked by ${audited.caller}`, audited.cached ? "made before, taken from the cache" : null];
  return element(
    "div",
    null,
    numbers({ ...audited, detail }),
    element("p", "hint origin", origin.filter(Boolean).join("; ")),
    texts ? null : element("p", "hint", "Question, reasoning and critique were not kept, only their digests."),
    element(
      "div",
      "columns",
      texts ? element("article", null, element("h3", null, "The reasoning"), caseView(texts.case)) : null,
      element("article", null, element("h3", null, "What the judge thought and found"), steps),
    ),
    facts({ ...audited, judgment_id: audited.id }),
  );
}
