// The page: what the address shows, keys, and requests to the API.
import { el, Steps, clusterCard, runCard, runHead, plan, doctor, status, effects, problem, loading, hasEnded } from "./view.js";

const $ = (id) => document.getElementById(id);
const main = $("main");
const api = "/api/v1";
// What proves to the API that this page sends a request. It is kept for all tabs of this address: unlike the cookie of the
// session, it does not reach servers at other ports of the host.
const csrfKey = "csrf";
let csrf = localStorage.getItem(csrfKey) ?? "";
let operates = false; // whether the session is of an operator; the API refuses readers whatever the page shows
let leave = () => {}; // ends what the shown view has going on
let shown = 0; // counts views: an answer for an earlier one is dropped
let actions = {}; // keys of the shown view

async function request(path, options = {}) {
  const headers = { ...(options.body ? { "Content-Type": "application/json" } : {}), ...(csrf ? { "X-CSRF-Token": csrf } : {}) };
  const response = await fetch(api + path, { credentials: "same-origin", ...options, headers });
  if (response.status === 204) return null;
  const answer = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
  if (response.ok) return answer;
  const error = new Error(answer.error ?? `the server answered ${response.status}`);
  error.status = response.status;
  if (error.status === 401 && path !== "/session") login();
  throw error;
}
const post = (path, body = {}) => request(path, { method: "POST", body: JSON.stringify(body) });

let lastSaid = 0;
function announce(text) { // one message at a time is read; those of one second together
  const live = $("live");
  live.textContent = Date.now() - lastSaid < 1000 && live.textContent.length < 200 ? `${live.textContent}; ${text}` : text;
  lastSaid = Date.now();
}
let hiding;
function alertUser(error) {
  const box = $("alert");
  box.textContent = String(error.message ?? error);
  box.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { box.hidden = true; }, 8000);
}
const attempt = (work) => work().catch(alertUser);

function show(...nodes) { main.replaceChildren(...nodes.flat().filter(Boolean)); }
function trail(...parts) {
  $("trail").replaceChildren(...parts.map(([text, href], i) => (i === parts.length - 1 ? el("span", { "aria-current": "page" }, text) : el("a", { href }, text))));
  document.title = [...parts.map(([text]) => text).reverse(), "Slipway"].join(" · ");
}

function confirmed(title, text, yes) {
  const dialog = $("confirm");
  $("confirm-title").textContent = title;
  $("confirm-text").textContent = text;
  $("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => { dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }); });
}

/** tabs shows one of several parts; each is made when it is opened. */
function tabs(label, parts) {
  const panel = el("div", { role: "tabpanel", id: "panel", tabindex: "0" });
  const buttons = parts.map(([name, make], i) => el("button", { type: "button", role: "tab", id: `tab-${i}`, "aria-controls": "panel", onclick: () => open(i),
    onkeydown: (e) => {
      const to = { ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: parts.length - 1 }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      const next = (to + parts.length) % parts.length;
      open(next);
      buttons[next].focus();
    } }, name));
  function open(at) {
    buttons.forEach((b, i) => { b.setAttribute("aria-selected", String(i === at)); b.tabIndex = i === at ? 0 : -1; });
    panel.setAttribute("aria-labelledby", `tab-${at}`);
    panel.replaceChildren(parts[at][1]());
  }
  parts.forEach((_, i) => { actions[String(i + 1)] = () => { open(i); buttons[i].focus(); }; });
  open(0);
  return el("div", {}, el("div", { class: "tabs", role: "tablist", "aria-label": label }, buttons), panel);
}

/** fetched shows what a request gives, once it is there, with a button to ask again. */
function fetched(path, wait, make) {
  const box = el("div");
  const ask = async () => {
    box.replaceChildren(loading(wait));
    try {
      const data = await request(path);
      box.replaceChildren(make(data), el("div", { class: "actions" }, el("button", { type: "button", class: "quiet", onclick: ask }, "Ask again")));
    } catch (error) {
      box.replaceChildren(problem(error), el("div", { class: "actions" }, el("button", { type: "button", class: "quiet", onclick: ask }, "Try again")));
    }
  };
  ask();
  return box;
}

function login() {
  leave();
  leave = () => {};
  shown++;
  actions = {};
  csrf = "";
  operates = false;
  localStorage.removeItem(csrfKey);
  $("logout").hidden = $("keys").hidden = true;
  $("user").textContent = "";
  trail(["Log in", "#/"]);
  const token = el("input", { id: "token", type: "password", autocomplete: "current-password", required: true, spellcheck: "false" });
  const failed = el("div");
  show(el("form", { class: "login", onsubmit: async (e) => {
    e.preventDefault();
    try {
      begin(await post("/session", { token: token.value }));
    } catch (error) {
      failed.replaceChildren(problem(error));
      token.select();
    }
  } }, el("h2", {}, "Log in"), el("label", { for: "token" }, "Token"),
  el("input", { type: "text", autocomplete: "username", value: "slipway", readonly: true, class: "hidden", tabindex: "-1", "aria-hidden": "true" }), token, el("button", {}, "Log in"), failed,
  el("p", { class: "soft small" }, "The command that serves this page has printed which file the token is in. An ID token of the configured OpenID Connect issuer is taken, too.")));
  token.focus();
}

function begin(session) {
  if (!session.csrf) { // of a tab that has the cookie alone
    login();
    return;
  }
  csrf = session.csrf;
  localStorage.setItem(csrfKey, csrf);
  operates = session.role === "operator";
  $("user").textContent = operates ? session.user : `${session.user} (reader)`;
  document.querySelectorAll(".operators").forEach((e) => { e.hidden = !operates; });
  $("logout").hidden = $("keys").hidden = false;
  route();
}

async function viewClusters(mine) {
  trail(["Clusters", "#/"]);
  const { items } = await request("/clusters");
  if (mine !== shown) return;
  if (items.length === 1 && !sessionStorage.getItem("seen")) {
    sessionStorage.setItem("seen", "1");
    location.replace(`#/${items[0].name}`);
    return;
  }
  show(el("h2", {}, "Clusters"), el("ul", { class: "cards" }, items.map(clusterCard)));
}

async function viewCluster(mine, name) {
  trail(["Clusters", "#/"], [name, `#/${name}`]);
  const path = `/clusters/${encodeURIComponent(name)}`;
  const cluster = await request(path);
  if (mine !== shown) return;
  actions.n = () => { location.hash = `#/${name}/new`; };
  const runs = el("ul", { class: "cards" });
  let last = "";
  const refresh = async () => {
    const { items } = await request(`${path}/runs`);
    if (mine !== shown || JSON.stringify(items) === last) return;
    last = JSON.stringify(items);
    const at = runs.contains(document.activeElement) ? document.activeElement.getAttribute("href") : "";
    runs.replaceChildren(...(items.length ? items.map(runCard) : [el("li", { class: "soft" }, operates ? "No run yet: plan one." : "No run yet.")]));
    if (at) runs.querySelector(`a[href="${CSS.escape(at)}"]`)?.focus();
  };
  await refresh();
  if (mine !== shown) return;
  const timer = setInterval(() => refresh().catch(() => {}), 2000);
  leave = () => clearInterval(timer);
  show(el("h2", {}, name, cluster.world === "lab" && el("span", { class: "tag plain" }, "rehearsal")),
    el("p", { class: "soft small" }, el("code", {}, cluster.dir), ", state in ", el("code", {}, cluster.stateFolder)),
    el("div", { class: "actions" }, el("a", { class: "button", href: `#/${name}/new` }, operates ? "Plan a run" : "Show a plan")),
    tabs("cluster", [["Runs", () => runs],
      ["Status", () => fetched(`${path}/status`, "Asking Hetzner and the clusters…", status)],
      ["Doctor", () => fetched(`${path}/doctor`, "Examining what a run would meet…", doctor)]]));
}

async function viewNew(mine, name) {
  trail(["Clusters", "#/"], [name, `#/${name}`], [operates ? "plan a run" : "a plan", ""]);
  const path = `/clusters/${encodeURIComponent(name)}`;
  const cluster = await request(path);
  if (mine !== shown) return;
  const result = el("div");
  const start = el("button", { type: "button", disabled: true, onclick: () => attempt(async () => {
    start.disabled = true;
    const run = await post(`${path}/runs`, { targets: planned });
    location.hash = `#/${name}/runs/${run.id}`;
  }) }, "Start");
  let planned = [];
  let asked = 0;
  const chosen = () => [...form.querySelectorAll("input:checked")].map((i) => i.value);
  const choice = (type, t) => el("label", {}, el("input", { type, name: "target", value: t, checked: t === cluster.targets[0] }), t);
  const form = el("form", { onsubmit: async (e) => {
    e.preventDefault();
    const targets = chosen();
    if (!targets.length) return alertUser("choose a target");
    const mineAsked = ++asked;
    start.disabled = true;
    result.replaceChildren(loading("Asking what a run would do…"));
    try {
      const p = await request(`${path}/plan?${new URLSearchParams(targets.map((t) => ["target", t]))}`);
      if (mine !== shown || mineAsked !== asked) return;
      planned = targets;
      result.replaceChildren(el("h3", {}, `Plan of ${targets.join(" ")}`), plan(p));
      start.disabled = Boolean(p.refused);
      start.textContent = `Start ${targets.join(" ")}`;
      announce(`the plan of ${targets.join(" ")} is shown`);
    } catch (error) {
      if (mineAsked === asked) result.replaceChildren(problem(error));
    }
  }, onchange: () => { asked++; start.disabled = true; start.textContent = "Start"; result.replaceChildren(); } },
  el("fieldset", {}, el("legend", {}, "Targets"), el("div", { class: "choices" }, cluster.targets.slice(0, 2).map((t) => choice("checkbox", t))),
    el("details", {}, el("summary", {}, "Single steps, each with those that it depends on"), el("div", { class: "choices" }, cluster.targets.slice(2).map((t) => choice("checkbox", t))))),
  el("div", { class: "actions" }, el("button", { class: "quiet" }, "Plan"), operates && start, el("span", { class: "soft small" }, operates ? "A run is started once its plan was shown." : "A reader cannot start runs.")));
  show(el("h2", {}, operates ? "Plan a run" : "A plan"), form, result);
  form.requestSubmit();
}

async function viewRun(mine, name, id) {
  trail(["Clusters", "#/"], [name, `#/${name}`], ["run", ""]);
  const path = `/clusters/${encodeURIComponent(name)}/runs/${encodeURIComponent(id)}`;
  let run = await request(path);
  if (mine !== shown) return;
  const head = el("div");
  const cancel = el("button", { type: "button", class: "danger", onclick: () => attempt(async () => {
    const again = run.cancelRequested;
    const text = again ? "It is being interrupted already. End its process at once? The journal is complete, and the run can be resumed."
      : "The steps at work are interrupted, what is done is kept, and the run can be resumed.";
    if (await confirmed(again ? "End the run at once?" : "Cancel the run?", text, again ? "End it" : "Cancel the run")) update(await post(`${path}/cancel`, { force: again }));
  }) }, "Cancel");
  const resume = el("button", { type: "button", onclick: () => attempt(async () => {
    const next = await post(`${path}/resume`);
    location.hash = `#/${name}/runs/${next.id}`;
  }) }, "Resume");
  const lost = el("p", { class: "note warning", hidden: true }, "The connection is gone; it is tried again.");
  const steps = new Steps(announce);
  function update(now) {
    run = now;
    head.replaceChildren(runHead(run));
    cancel.hidden = !operates || !run.cancellable || !run.by;
    cancel.textContent = run.cancelRequested ? "End at once" : "Cancel";
    resume.hidden = !operates || !run.resumable;
    if (hasEnded(run.state)) steps.end();
  }
  update(run);
  const close = followEvents(`${api}${path}/events`, { event: (e) => steps.add(e), run: update, end: () => { steps.end(); announce(`run ${run.state}`); }, lost: (is) => { lost.hidden = !is; } });
  const timer = setInterval(() => steps.tick(), 500);
  leave = () => { close(); clearInterval(timer); };
  actions.x = () => { if (!cancel.hidden) cancel.click(); };
  actions.r = () => { if (!resume.hidden) resume.click(); };
  show(head, lost, el("div", { class: "actions" }, cancel, resume),
    tabs("run", [["Progress", () => steps.node],
      ["Report", () => report(path)],
      ["Effects", () => fetched(`${path}/effects`, "Reading what the run changed…", effects)]]));
}

/** report shows the report in a frame, which runs nothing. Where there is none, the first request says why. */
function report(path) {
  const url = `${api}${path}/report`;
  const box = el("div", {}, loading("Writing the report…"));
  fetch(url, { credentials: "same-origin" }).then(async (response) => {
    if (!response.ok) throw new Error((await response.json()).error);
    box.replaceChildren(el("p", {}, el("a", { href: url, target: "_blank", rel: "noopener" }, "Open the report in a window of its own")),
      el("iframe", { src: url, title: "report of the run", sandbox: "" }));
  }).catch((error) => box.replaceChildren(problem(error)));
  return box;
}

/** followEvents follows a stream, and takes it up again where it stopped: the browser names the last event. */
function followEvents(url, on) {
  const source = new EventSource(url, { withCredentials: true });
  let last = "";
  source.addEventListener("event", (m) => {
    if (Number(m.lastEventId) <= Number(last)) return;
    last = m.lastEventId;
    on.event(JSON.parse(m.data));
  });
  source.addEventListener("run", (m) => on.run(JSON.parse(m.data)));
  source.addEventListener("end", () => { source.close(); on.lost(false); on.end(); });
  source.onopen = () => on.lost(false);
  source.onerror = () => {
    on.lost(true);
    if (source.readyState === EventSource.CLOSED) { // refused: logged out after a restart, for one
      source.close();
      setTimeout(() => request("/session").then(route, (error) => { if (error.status === 401) login(); }), 1500);
    }
  };
  return () => source.close();
}

function route() {
  leave();
  leave = () => {};
  actions = {};
  const mine = ++shown;
  const [name, kind, id] = location.hash.replace(/^#\//, "").split("/").map(decodeURIComponent);
  show(loading("Loading…"));
  const view = !name ? viewClusters(mine) : kind === "new" ? viewNew(mine, name) : kind === "runs" && id ? viewRun(mine, name, id) : viewCluster(mine, name);
  view.catch((error) => { if (mine === shown && error.status !== 401) show(problem(error)); });
}

document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]") || e.target.closest("input, select, textarea")) return;
  const links = [...main.querySelectorAll("a.whole")];
  const at = links.indexOf(document.activeElement);
  const up = () => { const h = location.hash.replace(/^#\//, "").split("/"); location.hash = h.length > 1 ? `#/${h[0]}` : "#/"; };
  const keys = { "?": () => { if (csrf) $("help").showModal(); }, c: () => { location.hash = "#/"; }, u: up,
    j: () => links[Math.min(at + 1, links.length - 1)]?.focus(), k: () => links[Math.max(at - 1, 0)]?.focus(), ...actions };
  if (!keys[e.key] || !csrf) return;
  e.preventDefault();
  keys[e.key]();
});
$("keys").addEventListener("click", () => $("help").showModal());
$("logout").addEventListener("click", () => attempt(async () => { await request("/session", { method: "DELETE" }); login(); }));
window.addEventListener("hashchange", () => { if (csrf) route(); });
window.addEventListener("storage", (e) => { // another tab logged in, maybe with another role, or out
  if (e.key !== csrfKey) return;
  csrf = e.newValue ?? "";
  if (csrf) request("/session").then(begin, login);
});
request("/session").then(begin, login);
