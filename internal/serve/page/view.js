// What the page shows, made of data. Texts are set as text, never as HTML.

/** el makes an element: attributes and listeners by name, children that are nodes or texts. */
export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return node;
}

const symbols = { done: "✓", reused: "=", running: "▸", verifying: "▸", failed: "✗", interrupted: "◦", skipped: "–", starting: "▸" };
const ended = ["finished", "failed", "interrupted", "cancelled"];
export const hasEnded = (state) => ended.includes(state);

/** duration is "1m38s" for nanoseconds. */
export function duration(ns) {
  const s = ns / 1e9;
  if (s < 10) return `${s.toFixed(1)}s`;
  if (s < 60) return `${Math.round(s)}s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, "0")}s`;
  return `${Math.floor(whole / 3600)}h${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
}

const between = (from, to) => duration((new Date(to) - new Date(from)) * 1e6);
const clock = (t) => new Date(t).toLocaleTimeString([], { hour12: false });
const moment = (t) => new Date(t).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hour12: false });
export const time = (t) => el("time", { datetime: new Date(t).toISOString() }, moment(t));
export const tag = (state, text = state) => el("span", { class: `tag ${state}` }, text);
export const world = (name) => name === "lab" && el("span", { class: "tag plain", title: "in the lab: nothing of it is at Hetzner" }, "rehearsal");
export const problem = (error) => el("p", { class: "error", role: "alert" }, String(error.message ?? error));
export const loading = (text) => el("p", { class: "soft", "aria-busy": "true" }, text);

/** table is a table that becomes a list of cards on a narrow screen; cells are texts or nodes. */
export function table(caption, head, rows) {
  return el("div", { class: "scroll" }, el("table", { class: "cards" }, el("caption", {}, caption),
    el("thead", {}, el("tr", {}, head.map((h) => el("th", { scope: "col" }, h)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el("td", { "data-name": i > 0 && head[i], class: typeof cell === "string" && cell.length < 14 && "brief" }, cell ?? "")))))));
}

const facts = (pairs) => el("dl", { class: "facts" }, pairs.filter(([, v]) => v).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))));

export function clusterCard(c) {
  const run = c.lastRun;
  return el("li", { class: run?.state ?? "" },
    el("div", { class: "line" }, el("a", { class: "whole", href: `#/${c.name}` }, c.name), world(c.world),
      run ? el("span", { class: "end" }, tag(run.state)) : el("span", { class: "soft end" }, "no run yet")),
    run && el("div", { class: "soft small" }, `last run: ${run.targets.join(" ")}, `, time(run.started)),
    el("div", { class: "soft small" }, el("code", {}, c.dir)));
}

export function runCard(r) {
  const until = r.ended ? between(r.started, r.ended) : "";
  return el("li", { class: r.state },
    el("div", { class: "line" }, el("a", { class: "whole", href: `#/${r.cluster}/runs/${r.id}` }, r.targets.join(" ")), tag(r.state), world(r.world),
      el("span", { class: "soft small end" }, time(r.started), until && `, ${until}`, r.by ? `, by ${r.by}` : ", started elsewhere")),
    r.message && el("div", { class: "soft small clip" }, r.message));
}

/** steps shows the steps of a run: a list that is updated event by event. */
export class Steps {
  constructor(announce) {
    this.announce = announce;
    this.rows = new Map();
    this.list = el("ol", { class: "steps", "aria-label": "steps of the run" });
    this.said = el("ul", { class: "said", tabindex: "0", "aria-label": "messages" });
    this.notes = el("ul", { class: "notes" });
    this.count = el("summary");
    this.noted = el("details", { hidden: true }, this.count, this.notes);
    this.node = el("div", {}, this.list, this.noted, el("details", {}, el("summary", {}, "All messages, in their order"), this.said));
  }

  row(step) {
    let row = this.rows.get(step);
    if (!row) {
      row = { mark: el("span", { class: "mark", "aria-hidden": "true" }), state: el("span", { class: "hidden" }), why: el("span", { class: "why" }), time: el("span", { class: "time" }) };
      row.node = el("li", {}, row.mark, el("span", { class: "name" }, step, " ", row.state), row.why, row.time);
      this.rows.set(step, row);
      this.list.append(row.node);
    }
    return row;
  }

  /** add takes one event of the run. Events that come a second time, after a reconnect, change nothing. */
  add(e) {
    const text = e.error || e.message || "";
    if (text) this.said.append(el("li", {}, el("span", { class: "at" }, clock(e.time)), el("span", {}, e.step ?? ""), el("span", {}, text)));
    if (e.kind === "note") {
      this.notes.append(el("li", {}, e.message));
      this.count.textContent = `Notes (${this.notes.children.length})`;
      this.noted.hidden = false;
    }
    if (e.kind === "run-started") this.announce(`run begins: ${e.message}`);
    if (e.kind === "run-finished") this.announce(e.error ? "run failed" : "run finished");
    if (!e.step) return;
    const row = this.row(e.step);
    const state = { "step-started": "running", "step-verifying": "verifying", "step-progress": "running", "step-done": "done", "step-reused": "reused",
      "step-skipped": "skipped", "step-failed": "failed", "step-interrupted": "interrupted" }[e.kind];
    if (!state) return;
    if (state === "running" && row.is !== "running") row.since = new Date(e.time) - (e.elapsedNs ?? 0) / 1e6;
    const says = { done: "done", reused: "what was made before is still right", verifying: "verifies what was made before" }[state];
    if (state === "done" || state === "reused") this.announce(`${e.step} ${state}`);
    if (state === "failed") this.announce(`${e.step} failed: ${text}`);
    row.is = state;
    row.node.className = state;
    row.mark.textContent = symbols[state];
    row.mark.classList.toggle("pulse", state === "running" || state === "verifying");
    row.state.textContent = `(${state})`;
    row.why.textContent = state === "done" && text ? `last: ${text}` : text || says || "";
    row.time.textContent = e.elapsedNs && state !== "verifying" ? duration(e.elapsedNs) : "";
  }

  /** tick counts the time of the steps at work on. */
  tick() {
    for (const row of this.rows.values()) if (row.is === "running" && row.since) row.time.textContent = duration(Math.max(0, Date.now() - row.since) * 1e6);
  }

  /** end marks what was at work when the run's process ended. */
  end() {
    for (const row of this.rows.values()) {
      if (row.is !== "running" && row.is !== "verifying") continue;
      row.is = row.node.className = "interrupted";
      row.mark.textContent = symbols.interrupted;
      row.mark.classList.remove("pulse");
      row.state.textContent = "(interrupted)";
    }
  }
}

export function runHead(r) {
  const share = r.steps.wanted ? Math.min(100, (100 * r.steps.done) / r.steps.wanted) : 0;
  const bar = el("i", { class: r.state });
  bar.style.width = `${r.state === "finished" ? 100 : share}%`;
  const kept = r.resumable ? "What is done is kept: resume continues there." : "What is done is kept.";
  const explained = { interrupted: kept, cancelled: `It was cancelled. ${kept}`, starting: "Its process has started.",
    running: r.cancelRequested ? "It is being interrupted: steps at work end first." : "" }[r.state];
  return el("div", {},
    el("h2", {}, r.targets.join(" "), tag(r.state), world(r.world)),
    el("div", { class: "progress", role: "progressbar", "aria-label": "steps done", "aria-valuemin": "0", "aria-valuemax": String(r.steps.wanted || 1), "aria-valuenow": String(r.steps.done) }, bar),
    el("p", { class: "soft small" }, r.steps.wanted ? `${r.steps.done} of ${r.steps.wanted} steps done` : hasEnded(r.state) ? "" : "the steps are not counted yet",
      " · ", time(r.started), r.ended ? ` · took ${between(r.started, r.ended)}` : "", r.by ? ` · by ${r.by}` : " · started elsewhere"),
    r.resumes && el("p", { class: "soft small" }, "resumes ", el("a", { href: `#/${r.cluster}/runs/${r.resumes}` }, r.resumes)),
    r.resumedBy && el("p", { class: "soft small" }, "resumed by ", el("a", { href: `#/${r.cluster}/runs/${r.resumedBy}` }, r.resumedBy)),
    explained && el("p", { class: `note ${r.state}` }, explained),
    r.message && r.state !== "finished" && el("pre", {}, r.message));
}

const price = (p) => (p && p.monthly ? `${p.monthly.toFixed(2)} ${p.currency}` : "");

export function plan(p) {
  const would = { run: "runs", "may-run": "may run", reuse: "is reused", skip: "is skipped" };
  const bill = p.bill;
  return el("div", {},
    p.offline && el("p", { class: "note warning" }, `Nothing outside was asked: ${p.offline}`),
    p.refused && el("p", { class: "note failed" }, "A run of these targets would be refused."),
    p.needsConsent && el("p", { class: "note warning" }, "Some of this needs consent: start the run at a terminal, or serve with --yes."),
    facts([["expected", p.expectedNs ? duration(p.expectedNs) + (p.builtIn ? " (not measured here)" : "") : ""],
      ["creates", bill ? `${(bill.new ?? []).length} kinds at Hetzner` : ""], ["costs a month", price(bill?.monthly)],
      ["runs", `${p.steps.filter((s) => s.would === "run").length} of ${p.steps.length} steps`]]),
    (p.consequences ?? []).length > 0 && table("What becomes of the cluster that exists", ["what", "object", "why"],
      p.consequences.map((c) => [c.effect, [c.object?.kind, c.object?.name].filter(Boolean).join(" "), (c.why ?? []).join(", ") + (c.refused ? ` (refused: ${c.refused})` : "")])),
    (p.deviations ?? []).length > 0 && table("Where configuration and cluster differ", ["variable", "configured", "in the cluster"],
      p.deviations.map((d) => [d.variable || d.what, d.wanted, d.live])),
    (p.remarks ?? []).map((r) => el("p", { class: "note" }, r.text)),
    table("What each step would do", ["step", "would", "takes", "why"], p.steps.map((s) => [el("b", {}, s.step), would[s.would] ?? s.would, s.expectedNs ? duration(s.expectedNs) : "", s.why ?? ""])));
}

export function doctor(d) {
  const bad = d.checks.filter((c) => c.verdict !== "ok");
  return el("div", {}, el("p", { class: `note ${d.failed ? "failed" : "ok"}` }, d.failed ? `${d.failed} checks would stop a run.` : "Nothing was found that would stop a run."),
    table("What a run would meet", ["check", "verdict", "reason", "what to do"], [...bad, ...d.checks.filter((c) => c.verdict === "ok")]
      .map((c) => [el("b", {}, c.check), tag(c.verdict === "ok" ? "ok" : c.verdict === "failed" || c.verdict === "fail" ? "failed" : "warning", c.verdict), c.reason, c.wayOut])));
}

export function status(s) {
  const now = s.now;
  return el("div", {},
    s.offline && el("p", { class: "note warning" }, `Nothing outside was asked: ${s.offline}`),
    now?.sentence && el("p", { class: "note" }, now.sentence),
    (s.notes ?? []).map((n) => el("p", { class: "note" }, n)),
    now && (now.servers ?? []).length > 0 && table("Servers", ["name", "state", "machine", "talos", "node"], now.servers.map((v) => [el("b", {}, v.name), v.state, v.phase, v.talos, v.node])),
    now && (now.etcdMembers ?? []).length > 0 && el("p", { class: "soft" }, `${now.etcdMembers.length} members of etcd, ${(now.releases ?? []).length} releases${price(now.costAMonth) ? `, ${price(now.costAMonth)} a month` : ""}`),
    table("Steps, as the journal and the cluster have them", ["step", "journal", "now", "why"],
      s.steps.map((v) => [el("b", {}, v.step), v.state, v.world ?? "", v.error || v.reason || (v.state === "done" ? "" : v.said) || ""])));
}

export function effects(list) {
  if (!list.effects.length) return el("p", { class: "soft" }, "This run has changed nothing yet.");
  const first = new Date(list.effects[0].first);
  return el("div", {}, table(`${list.effects.reduce((n, e) => n + e.times, 0)} changes of ${list.effects.length} kinds`, ["at", "effect", "step", "times"],
    list.effects.map((e) => [duration((new Date(e.first) - first) * 1e6), e.effect, e.step ?? "",
      `${e.times}${e.failed ? `, ${e.failed} failed` : ""}${e.unanswered ? `, ${e.unanswered} without an answer` : ""}`])),
  el("p", { class: "soft small" }, "each call: ", el("code", {}, list.file)));
}
