// A case before the reader's eyes: what happens is put down as it arrives.

import { byId, digits, duration, element } from "./dom.js";
import { caseView, facts, failure, kind, numbers, outcome, searchView, step } from "./judgment.js";
import { Refusal, watch } from "./service.js";

let leave = null; // stops what is under way

/** Judge a case and show it. Returns when it is over, one way or the other. */
export async function judge(body, onRefused) {
  const started = performance.now();
  leave?.abort();
  const leaving = new AbortController();
  leave = leaving;
  begin(body.case);
  const clock = setInterval(() => {
    byId("clock").textContent = `${Math.round((performance.now() - started) / 1000)} s`;
  }, 1000);
  try {
    let judgment = null;
    for await (const [name, data] of watch(body, leaving.signal)) {
      if (leaving.signal.aborted) break;
      if (name === "problem") throw new Refusal(data.status, data.title, data.detail);
      if (name === "judgment") judgment = data;
      else happened[name]?.(data);
    }
    if (leave !== leaving) return; // another case is shown by now
    if (judgment) end(judgment);
    else if (leaving.signal.aborted) stopped();
    else throw new Refusal(0, "The connection broke", "The service went away before its judgment.");
  } catch (error) {
    if (leave !== leaving) return;
    if (leaving.signal.aborted) stopped();
    else if (error instanceof Refusal) refused(error, onRefused);
    else throw error;
  } finally {
    clearInterval(clock);
    if (leave === leaving) rest();
  }
}

/** Stop what is under way; the service stops as well. */
export const stop = () => leave?.abort();

const say = (text) => (byId("said").textContent = text);

function headline(text, name) {
  const line = byId("outcome");
  line.textContent = text;
  line.className = name;
}

function begin(shown) {
  byId("episode").hidden = false;
  byId("numbers").replaceChildren();
  byId("happened").replaceChildren();
  byId("read").replaceChildren(caseView(shown));
  byId("whole").hidden = true;
  byId("clock").textContent = "";
  byId("stop").hidden = false;
  headline("Waiting for a place …", "working");
  say("Sent.");
  byId("episode").classList.add("under-way");
  byId("outcome").focus({ preventScroll: true });
  byId("episode").scrollIntoView();
}

function rest() {
  byId("stop").hidden = true;
  byId("episode").classList.remove("under-way");
  leave = null;
}

const put = (item) => byId("happened").append(item);

const happened = {
  admitted({ in_flight: all, places }) {
    const others = all - 1;
    if (!others) return;
    const words = `${others} other ${others === 1 ? "case is" : "cases are"} in work; the judge takes ${places} at a time.`;
    put(step("Admitted", null, element("p", "hint", words)));
    say(words);
  },
  opened({ waited_s: waited }) {
    headline("Thinking …", "working");
    if (waited >= 1) put(step("Waited", waited));
    say("The judge has begun.");
  },
  thought({ text, seconds }) {
    headline("Thinking …", "working");
    put(step("Thought", seconds, element("p", "said thought", text || "(empty)")));
    say(`Thought: ${text}`);
  },
  searched({ search, seconds }) {
    headline("Reading …", "working");
    put(step("Search", seconds, searchView(search.query, search.passages, search.omitted)));
    const [first] = search.passages;
    say(`Searched for ${search.query}: ${first ? `${search.passages.length} passages, the first is ${first.title}` : "nothing found"}`);
  },
  decided({ verdict, p_correct: p, seconds }) {
    const words = verdict === 1 ? "Free of errors" : "Has errors";
    headline(words, verdict === 1 ? "fine" : "mistake");
    put(step("Verdict", seconds, element("p", null, `${words}, p ${digits(p)}`)));
  },
};

function end(judgment) {
  headline(outcome(judgment), kind(judgment));
  byId("numbers").replaceChildren(numbers(judgment), facts(judgment));
  if (!byId("happened").querySelector(".thought, .search")) retell(judgment);
  byId("clock").textContent = judgment.latency_ms ? duration(judgment.latency_ms / 1000) : "";
  byId("json").textContent = JSON.stringify(judgment, null, 2);
  byId("whole").hidden = false;
  const p = judgment.status === "scored" ? `, probability ${digits(judgment.p_correct)}` : `: ${judgment.detail}`;
  say(`${outcome(judgment)}${p}`);
}

/** A judgment that came without its episode: it had been made before, or for somebody who asked the same. */
function retell({ reasoning, searches, turns }) {
  if (turns) put(element("li", null, element("p", "hint", "It was judged before, with the same seed. This is that judgment.")));
  if (reasoning) put(step("Thoughts", null, element("p", "said thought", reasoning)));
  for (const search of searches) put(step("Search", null, searchView(search.query, search.passages, search.omitted)));
  if (!turns && !searches.length) put(step("Nothing", null, element("p", "hint", "The judge did not begin.")));
}

function stopped() {
  headline("Stopped", "unjudged");
  byId("numbers").replaceChildren(failure("You stopped it before there was a judgment.", ""));
  say("Stopped. Not judged.");
}

function refused(error, onRefused) {
  headline("Not judged", "unjudged");
  const again = error.retryAfter ? element("p", null, `Try again in ${error.retryAfter} seconds.`) : null;
  byId("numbers").replaceChildren(failure(error.title, error.detail, again));
  say(`Not judged: ${error.title}. ${error.detail}`);
  onRefused(error);
}
