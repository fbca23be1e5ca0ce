// How a judgment and its parts look: the same for one that arrives and for one of the past.

import { digits, duration, element, percent, withAttributes } from "./dom.js";

const WHY = {
  unparseable: "The judge gave no readable verdict.",
  truncated: "The judge ran into a limit before its verdict.",
  retrieval_failed: "The search failed, and a judgment without evidence would not be one.",
  engine_failed: "The model failed.",
  timeout: "The time ran out.",
};

const ENDING = {
  max_turns: "turns",
  max_searches: "searches",
  max_tokens: "tokens",
  context_full: "the context is full",
  prompt_too_long: "the case is too long",
};

const WEAK = 0.5; // below it, something else than the two verdicts was likelier

/** The outcome in words. */
export function outcome(judgment) {
  if (judgment.status !== "scored") return "Not judged";
  return judgment.verdict === 1 ? "Free of errors" : "Has errors";
}

/** Of which kind it is, for colour: fine, mistake or nothing. */
export function kind(judgment) {
  if (judgment.status !== "scored") return "unjudged";
  return judgment.verdict === 1 ? "fine" : "mistake";
}

/** Why there is no judgment, said plainly. */
export function failure(title, detail, more = null) {
  return element(
    "div",
    "failure",
    element("p", null, element("strong", null, title)),
    detail ? element("p", "said", detail) : null,
    more,
    element("p", "hint", "This says nothing about the reasoning: neither right nor wrong, and no number."),
  );
}

/** The numbers of a judgment, or why there are none. */
export function numbers(judgment) {
  if (judgment.status !== "scored") {
    const ending = ENDING[judgment.stop_reason];
    const more = ending ? element("p", "hint", `Limit: ${ending}.`) : null;
    return failure(WHY[judgment.status] ?? judgment.status, judgment.detail, more);
  }
  const { p_correct: p, p_calibrated: calibrated, label_mass: mass, forced } = judgment;
  const facts = element("dl", "numbers");
  const say = (term, value, words) =>
    facts.append(
      element("div", null, element("dt", null, term), element("dd", "figure", value), element("dd", "words", words)),
    );
  say("p", digits(p), "that the reasoning is free of errors, as the judge says");
  if (typeof calibrated === "number") {
    say("calibrated", digits(calibrated), "how often such reasoning was right where the judge was calibrated");
  } else {
    say("calibrated", "—", "this judge is not calibrated: p orders traces, it is not a frequency");
  }
  if (typeof mass === "number") {
    const weak = "the judge would sooner have written something else, so p is a weak sign";
    say("label mass", percent(mass), mass < WEAK ? weak : "how much the judge meant either verdict");
  }
  if (forced) say("forced", "yes", "the verdict was asked for; the judge did not come to it by itself");
  return element("div", mass < WEAK ? "weak" : null, bar(p, calibrated), facts);
}

/** The probability as a bar that grows from the middle, to the side that the verdict is on. */
function bar(p, calibrated) {
  const words = `Probability of being free of errors: ${digits(p)}`;
  const also = typeof calibrated === "number" ? `; calibrated ${digits(calibrated)}` : "";
  const track = withAttributes(element("div", "track"), { role: "img", "aria-label": `${words}${also}` });
  const fill = element("div", p > 0.5 ? "fill fine" : "fill mistake");
  fill.style.setProperty("--from", `${100 * Math.min(p, 0.5)}%`);
  fill.style.setProperty("--to", `${100 * Math.max(p, 0.5)}%`);
  track.append(fill, mark("middle", 0.5), mark("p", p));
  if (typeof calibrated === "number") track.append(mark("calibrated", calibrated));
  const ends = ["0 has errors", "0.5", "1 free of errors"].map((text) => element("span", null, text));
  return element("div", "bar", track, withAttributes(element("div", "ends", ...ends), { "aria-hidden": "true" }));
}

function mark(name, share) {
  const made = element("div", `mark ${name}`);
  made.style.setProperty("--at", `${100 * share}%`);
  return made;
}

/** What a judgment cost and how to have it again. */
export function facts(judgment) {
  const { usage } = judgment;
  const known = [
    ["turns", String(judgment.turns)],
    ["tokens", `${usage.prompt_tokens} read, ${usage.policy_tokens} written, ${usage.environment_tokens} shown`],
    ["time", typeof judgment.latency_ms === "number" ? duration(judgment.latency_ms / 1000) : null],
    ["ended by", judgment.stop_reason],
    ["seed", String(judgment.seed)],
    ["judgment", judgment.judgment_id],
    ["case", judgment.case_digest.slice(0, 16)],
    ["judge", judgment.judge_id.slice(0, 16)],
  ];
  const list = element("dl", "facts");
  for (const [term, value] of known) {
    if (value) list.append(element("div", null, element("dt", null, term), element("dd", null, value)));
  }
  return list;
}

/** Question, options and reasoning, as they were sent. */
export function caseView({ question, trace }) {
  const options = Object.entries(question.options ?? {});
  const reasoning = trace.steps
    ? element("ol", "trace", ...trace.steps.map((step) => element("li", "said", step)))
    : element("p", "trace said", trace.text);
  return element(
    "div",
    null,
    element("h4", null, "Question"),
    element("p", "said", question.text),
    options.length ? element("ul", "choices", ...options.map(([letter, text]) => choice(letter, text))) : null,
    element("h4", null, "Reasoning"),
    reasoning,
  );
}

const choice = (letter, text) => element("li", null, element("span", "letter", letter), element("span", "said", text));

/** One step of an episode: what it is, how long it took, and what came of it. */
export function step(name, seconds, ...inside) {
  const took = typeof seconds === "number" ? element("span", "took", duration(seconds)) : null;
  return element("li", null, element("div", "what", element("h4", null, name), took), ...inside);
}

/** A search with the passages that the judge was shown. */
export function searchView(query, passages, omitted) {
  const shown = passages.map((passage, index) => passageView(passage, index === 0));
  return element(
    "div",
    "search",
    query === null ? null : element("p", "query said", query),
    element("ol", "passages", ...shown),
    shown.length ? null : element("p", "hint", "Nothing was shown."),
    omitted ? element("p", "hint", `${omitted} more were found and left out for want of room.`) : null,
  );
}

function passageView({ rank, score, title, text, source, topic, corpus, id }, open) {
  const details = element("details", null);
  details.open = open;
  const about = [corpus, topic, id].filter(Boolean).join(" · ");
  details.append(
    element("summary", null, element("span", "title said", title || id), element("span", "score", `score ${digits(score)}`)),
    element(
      "div",
      null,
      text === null ? element("p", "hint", "Its text is no longer kept.") : element("p", "said", text),
      element("p", "hint said", about),
      source ? element("p", "hint said", "Source: ", link(source)) : null,
    ),
  );
  const item = element("li", null, details);
  item.value = rank;
  return item;
}

/** A source as a link if it is a web address, else as text. */
function link(source) {
  if (!/^https:\/\/[^\s]+$/.test(source) || !URL.canParse(source)) return source;
  const anchor = withAttributes(element("a", null, source), { rel: "noreferrer noopener external" });
  anchor.href = new URL(source).href; // https, by the line above
  return anchor;
}
