// Conveniences beyond forms and links. Every page works without this script.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const one = (what, within = document) => within.querySelector(what);
  const all = (what, within = document) => [...within.querySelectorAll(what)];
  const csrf = () => one("input[name=csrf]")?.value ?? "";

  // The server counts days in the zone of the browser, unless another one was chosen.
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (local) document.cookie = `outcrop_local_zone=${encodeURIComponent(local)}; path=/; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  // Show times in that zone; UTC stays visible on hover.
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short", timeZone: root.dataset.zone });
  const localise = (within) => all("time[datetime]", within).forEach((time) => {
    const moment = new Date(time.dateTime);
    if (!Number.isNaN(moment.valueOf())) time.textContent = zone.format(moment);
  });

  const toast = one("#toast");
  const UNDO_TIME = 30_000;  // as the server allows
  let hiding, undoable = null;
  const tell = (text, undo = null) => {
    one("p", toast).textContent = text;
    one("button", toast).hidden = !undo;
    undoable = undo;
    toast.hidden = false;
    clearTimeout(hiding);
    hiding = setTimeout(() => { toast.hidden = true; undoable = null; }, undo ? UNDO_TIME : 5000);
  };
  // The button beside the message of a page that was loaded.
  const bar = one("form[data-undo]");
  if (bar) setTimeout(() => { bar.hidden = true; }, UNDO_TIME);

  const ended = (answer) => answer.redirected && new URL(answer.url).pathname === "/sign-in";  // the session has ended

  // Reload a part of the page. The header says that the server should send only this part.
  const part = async (address, signal) => {
    const answer = await fetch(address, { headers: { "X-Part": "list" }, credentials: "same-origin", signal });
    if (ended(answer)) { location.reload(); return null; }
    return answer.ok ? answer.text() : null;
  };
  // What a person has typed and selected in a part of the page, and how to put it into the new part.
  const fields = (list) => all("input[name]:not([type=hidden]), textarea[name], select[name]", list);
  const typed = (list) => fields(list).map((field) => [field.name, field.type === "checkbox" ? field.value : null, field.type === "checkbox" ? field.checked : field.value]);
  const retype = (list, before) => before.forEach(([name, value, now]) => {
    const field = fields(list).find((found) => found.name === name && (value === null || found.value === value));
    if (field) { if (value === null) field.value = now; else field.checked = now; }
  });
  const isTouched = (field) => {
    if (field.type === "checkbox") return field.checked !== field.defaultChecked;
    if (field.matches("select")) return field.selectedIndex !== Math.max([...field.options].findIndex((option) => option.defaultSelected), 0);
    return field.value !== field.defaultValue;
  };
  const show = (html, { keep = false } = {}) => {
    const list = one("#list");
    const aside = one(".scroll", list)?.scrollLeft ?? 0;
    const before = keep ? typed(list) : [];
    list.innerHTML = html;  // rendered by our own server, which escapes all foreign text
    retype(list, before);
    count();
    const table = one(".scroll", list);
    if (table) table.scrollLeft = aside;
    localise(list);
    poll();
  };

  // Nothing is replaced under the eyes of a person who has opened, focused or selected it.
  const busyReading = () => {
    const selection = getSelection();
    return document.hidden || one("#list details[open]") || one("#list :focus")
      || (!selection.isCollapsed && one("#list").contains(selection.anchorNode));
  };
  // Refresh progress while the page is visible.
  let waiting;
  function poll() {
    clearTimeout(waiting);
    const going = one("#list [data-poll]");
    if (!going) return;
    waiting = setTimeout(async () => {
      if (busyReading()) { poll(); return; }
      const html = await part(location.href).catch(() => null);
      if (html === null || busyReading()) { poll(); return; }  // a person may have begun to read meanwhile
      if (one("#list[data-reloads]") && !html.includes("data-poll")) {  // other parts of the page have changed too
        if (!fields(one("main")).some(isTouched)) { location.reload(); return; }
        tell("The check has ended.");
      }
      show(html, { keep: true });
    }, Number(going.dataset.poll));
  }

  // The link back from a finding leads to the last view of the list.
  const remember = () => {
    if (!one("#triage")) return;
    sessionStorage.setItem("list", location.pathname + location.search);
    sessionStorage.setItem("rows", JSON.stringify(listed(document)));
  };
  const listed = (page) => ({
    ids: all("#triage .row[data-id]", page).map((row) => row.dataset.id),
    previous: one(".pager a[rel=prev]", page)?.getAttribute("href"),
    next: one(".pager a[rel=next]", page)?.getAttribute("href"),
  });
  const left = sessionStorage.getItem("list");
  if (left?.startsWith("/findings")) all('a[data-back][href="/findings"]').forEach((back) => { back.setAttribute("href", left); });

  // Search as you type.
  const live = one("form[data-live]");
  if (live) {
    let asked, typing;
    const address = () => {
      const given = new URLSearchParams(new FormData(live));
      for (const [name, value] of [...given]) {
        if (!value || (name === "order_by" && value === "composite_score") || (name === "order_dir" && value === "desc")) given.delete(name);
      }
      return `${live.getAttribute("action")}${given.size ? `?${given}` : ""}`;
    };
    // Each change of a filter is a step for the Back button; a text that is being typed is one step.
    let steps = false, last = null, current = location.pathname + location.search;
    addEventListener("popstate", () => { if (location.pathname + location.search !== current) location.reload(); });
    const ask = async () => {
      asked?.abort();
      asked = new AbortController();
      const to = address();
      const html = await part(to, asked.signal).catch(() => null);
      if (html === null) return;
      if (to !== current) history[steps ? "pushState" : "replaceState"](null, "", to);
      steps = false;
      current = to;
      const view = one("input[data-view]");
      if (view) view.value = new URL(to, location.href).search;
      follow(to);
      show(html, { keep: true });
      remember();
    };
    // Links that leave the list keep the view.
    const list = live.getAttribute("action"), first = live.dataset.live || "active";  // the tab without a parameter
    const follow = (to) => {
      const given = new URL(to, location.href).searchParams;
      const link = (path, more) => {
        const own = new URLSearchParams({ ...Object.fromEntries(given), ...more });
        if (own.get("status") === first && path === list) own.delete("status");
        return `${path}${own.size ? `?${own}` : ""}`;
      };
      all("a[data-tab]").forEach((tab) => { tab.href = link(list, { status: tab.dataset.tab }); });
      all("a[data-export]").forEach((a) => { a.href = link(a.dataset.export, { status: given.get("status") ?? "active" }); });
      one("[data-clear]").hidden = ![...given.keys()].some((name) => name !== "status");
    };
    live.addEventListener("input", (event) => {
      if (event.target !== last || event.target.matches("select, [type=date]")) steps = true;
      last = event.target;
      clearTimeout(typing);
      typing = setTimeout(ask, 120);
    });
    live.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typing); ask(); });
  }

  document.addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      const from = document.getElementById(copy.dataset.copy);
      try { await navigator.clipboard.writeText(from.textContent); tell("Copied."); }
      catch { getSelection().selectAllChildren(from); tell("Marked: copy it with your keyboard."); }
    }
    if (event.target.closest("#toast button")) undo();
    if (event.target.closest("[data-print]")) print();
    if (event.target.closest("[data-help]")) one("#keys")?.showModal();
    const back = event.target.closest("[data-back]");
    if (back && document.referrer.startsWith(`${location.origin}${back.pathname}?`)) { event.preventDefault(); history.back(); }
  });
  const everything = () => one("#triage input[name=all]")?.checked;
  const boxes = () => all("#triage input[name=id]");
  function count() {
    const marked = boxes().filter((box) => box.checked).length;
    const counter = one("[data-marked]");
    if (counter) counter.textContent = marked ? `${marked} selected` : "";
  }
  const NONE = `Choose a finding first${root.dataset.keys === "off" ? "." : ": j and k move, Space marks."}`;
  document.addEventListener("submit", (event) => {
    if (event.target.matches("#triage") && !everything() && !boxes().some((box) => box.checked)) { event.preventDefault(); tell(NONE); return; }
    const asks = event.target.closest("[data-confirm]");
    if (asks && !confirm(asks.dataset.confirm)) event.preventDefault();
  });
  // The form of a target is sent in the background: what is wrong is shown above it, and the credential stays.
  document.addEventListener("submit", async (event) => {
    const form = event.target.closest("form[data-tests-access]");
    if (!form || form.dataset.sends) return;
    event.preventDefault();
    const button = event.submitter;
    const body = new URLSearchParams(new FormData(form));
    if (button?.name) body.append(button.name, button.value || "1");
    form.dataset.sends = "yes";
    form.setAttribute("aria-busy", "true");
    tell("Testing access …");
    try {
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { "X-Part": "access", Accept: "text/html" }, credentials: "same-origin" });
      if (ended(answer)) { location.reload(); return; }
      const to = answer.headers.get("x-location");
      if (to) { location.href = to; return; }
      const place = one("[data-access]", form);
      const html = await answer.text();
      if (html.includes("</html>")) { form.requestSubmit(button); return; }  // an error has a page of its own
      place.innerHTML = html;  // rendered by our own server, which escapes all foreign text
      toast.hidden = true;
      place.scrollIntoView({ block: "center" });
    } catch { tell("That did not reach the server. Try again."); } finally { delete form.dataset.sends; form.removeAttribute("aria-busy"); }
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-mark-all]")) boxes().forEach((box) => { box.checked = event.target.checked; });
    if (event.target.closest("#triage")) count();
    if (event.target.matches("[data-run-target]")) one("[data-run] button").formAction = event.target.value;
    if (event.target.matches("[data-kind]")) all("[data-kind-options]").forEach((set) => set.classList.toggle("waits", set.dataset.kindOptions !== event.target.value));
  });

  // Triage by keyboard: on the highlighted row, or on all selected rows.
  const rows = () => all("#list .row[data-id]");
  const lit = () => one("#list .row.here");
  const mark = (row) => {
    lit()?.classList.remove("here");
    row?.classList.add("here");
    if (row) sessionStorage.setItem("here", row.dataset.id);
  };
  const light = (row) => {
    mark(row);
    if (!row) return;
    row.scrollIntoView({ block: "nearest" });
    one(".what", row).focus({ preventScroll: true });
  };
  document.addEventListener("focusin", (event) => {  // keys act on the focused row
    const row = event.target.closest("#list .row[data-id]");
    if (row && row !== lit()) mark(row);
  });
  const step = (by) => {
    const there = rows();
    const at = there.indexOf(lit());
    light(there[Math.min(Math.max(at < 0 ? (by > 0 ? 0 : there.length - 1) : at + by, 0), there.length - 1)]);
  };
  const ACTIONS = { r: ["resolve"], x: ["restrict"], f: ["false_positive"], s: ["suppress", "unsuppress"] };
  // Ask before valid credentials are closed. The key of the action proceeds.
  const choose = (question, key) => new Promise((settle) => {
    const dialog = one("#asks");
    one("h2", dialog).textContent = question.title;
    one("p", dialog).textContent = question.text;
    one("[value=proceed] span", dialog).textContent = question.proceed;
    one("kbd", dialog).textContent = key;
    const press = (event) => { if (event.key === key && !event.repeat) { event.preventDefault(); dialog.close("proceed"); } };
    dialog.returnValue = "";
    dialog.addEventListener("keydown", press);
    dialog.addEventListener("close", () => { dialog.removeEventListener("keydown", press); settle(dialog.returnValue); }, { once: true });
    dialog.showModal();
  });
  let busy = false;
  const triage = async (key) => {
    const actions = ACTIONS[key];
    const form = one("#triage");
    const button = form && actions.map((name) => one(`button[value=${name}]`, form)).find(Boolean);
    if (!form || busy) return;
    if (!button) { tell("That cannot be done in this view."); return; }
    if (everything()) { form.requestSubmit(button); return; }  // the server asks
    const marked = rows().filter((row) => one("input[name=id]", row).checked);
    const chosen = marked.length ? marked : [lit()].filter(Boolean);
    if (!chosen.length) { tell(NONE); return; }
    const body = new URLSearchParams({ csrf: csrf(), action: button.value, note: one("input[name=note]", form)?.value ?? "" });
    chosen.forEach((row) => body.append("id", row.dataset.id));
    busy = true;
    try {
      const send = (to) => fetch(to, { method: "POST", body, headers: { "X-Part": "triage", Accept: "application/json" }, credentials: "same-origin" });
      let answer = await send(form.getAttribute("action"));
      if (ended(answer)) { location.reload(); return; }
      let said = await answer.json();
      if (said.asks) {
        const how = await choose(said.asks, key);
        if (!how) return;
        body.set("confirmed", "yes");
        answer = await send(how === "check" ? "/findings/validate" : form.getAttribute("action"));
        if (ended(answer)) { location.reload(); return; }
        said = await answer.json();
        if (how === "check") { tell(said.message); return; }
      }
      tell(said.message, said.undo);
      if (!answer.ok) return;
      const next = rows().slice(rows().indexOf(chosen.at(-1)) + 1).find((row) => !chosen.includes(row))
        ?? rows().filter((row) => !chosen.includes(row)).at(-1);
      const html = await part(location.href);
      const id = next?.dataset.id;
      if (html !== null) { show(html); remember(); light(rows().find((row) => row.dataset.id === id) ?? rows()[0]); }
    } catch { tell("That did not reach the server. Try again."); } finally { busy = false; }
  };
  // Undo the last triage: that of the keyboard, or that of the message at the top of the page.
  const undo = async () => {
    if (!undoable) { if (bar && !bar.hidden) bar.requestSubmit(); return; }
    const body = new URLSearchParams({ csrf: csrf(), id: undoable });
    try {
      const answer = await fetch("/undo", { method: "POST", body, headers: { "X-Part": "undo", Accept: "application/json" }, credentials: "same-origin" });
      if (ended(answer)) { location.reload(); return; }
      tell((await answer.json()).message);
      const html = await part(location.href);
      if (html !== null) { show(html); remember(); }
    } catch { tell("That did not reach the server. Try again."); }
  };
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    if (event.target.matches("input:not([type=checkbox]), textarea, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (root.dataset.keys === "off") return;  // the user has turned shortcuts off
    if (event.repeat && !"jk".includes(event.key)) return;  // ignore auto-repeat
    if (event.key === "z" && (undoable || bar)) { event.preventDefault(); undo(); return; }
    const own = one(`[data-key="${CSS.escape(event.key)}"]`);
    if (own) { event.preventDefault(); own.click(); return; }
    if (!one("#triage")) return;
    const done = () => event.preventDefault();
    if (event.key === "j") { done(); step(1); }
    else if (event.key === "k") { done(); step(-1); }
    else if (event.key === "/") { done(); one("input[type=search]")?.focus(); }
    else if (event.key === "?") { done(); one("#keys")?.showModal(); }
    else if (event.key === " " && lit() && !event.target.matches("button, summary, input")) {
      done();
      const box = one("input[name=id]", lit());
      box.checked = !box.checked;
      count();
    } else if (ACTIONS[event.key] && !event.shiftKey) { done(); triage(event.key); }
  });

  // Back from a finding, the list is where it was left.
  if (one("#triage")) {
    const back = performance.getEntriesByType("navigation")[0]?.type === "back_forward" || document.referrer.startsWith(`${location.origin}/findings/`);
    const row = back && rows().find((found) => found.dataset.id === sessionStorage.getItem("here"));
    if (row) light(row);
  }
  // The next and the previous finding of the list that the person came from, also on its other pages.
  const neighbours = one("[data-neighbours]");
  if (neighbours) {
    const id = neighbours.dataset.neighbours;
    const { ids, previous, next } = JSON.parse(sessionStorage.getItem("rows") ?? '{"ids": []}');
    const at = ids.indexOf(id);
    const add = (text, key, to, page, first) => {
      if (!to && !page) return;
      const link = document.createElement("a");
      link.href = to ? `/findings/${to}` : `/findings${page}`;
      link.dataset.key = key;
      link.append(text, " ");
      link.append(Object.assign(document.createElement("kbd"), { textContent: key }));
      if (!to) link.addEventListener("click", async (event) => {
        event.preventDefault();
        const html = await part(`/findings${page}`).catch(() => null);
        const found = html === null ? { ids: [] } : listed(new DOMParser().parseFromString(`<div>${html}</div>`, "text/html"));
        if (!found.ids.length) { location.href = link.href; return; }
        sessionStorage.setItem("rows", JSON.stringify(found));
        sessionStorage.setItem("list", `/findings${page}`);
        location.href = `/findings/${found.ids.at(first ? 0 : -1)}`;
      });
      neighbours.append(link);
    };
    if (at >= 0) {
      sessionStorage.setItem("here", id);
      add("← Previous", "k", ids[at - 1], previous, false);
      add("Next →", "j", ids[at + 1], next, true);
      neighbours.hidden = !neighbours.children.length;
    }
  }

  // Update the `curl` commands of the reference while the user types.
  const quoted = (text) => text.replaceAll("'", "'\\''");
  const curl = (call) => {
    let path = call.dataset.path;
    const query = new URLSearchParams();
    for (const field of call.elements) {
      if (!field.name) continue;
      if (field.dataset.in === "path") path = path.replace(`{${field.name}}`, field.value ? encodeURIComponent(field.value) : `{${field.name}}`);
      else if (field.value) query.append(field.name, field.value);
    }
    const key = one("[data-key-for-curl]").value || "KEY";
    const address = `${call.dataset.server}${path}${query.size ? `?${query}` : ""}`;
    one("[data-curl]", call.closest(".call")).textContent = `curl ${call.dataset.method === "POST" ? "-X POST " : ""}-H 'Authorization: Bearer ${quoted(key)}' '${quoted(address)}'`;
  };
  document.addEventListener("input", (event) => {
    const call = event.target.closest("form[data-call]");
    if (call) curl(call);
    if (event.target.matches("[data-key-for-curl]")) all("form[data-call]").forEach(curl);
  });
  document.addEventListener("submit", (event) => { if (event.target.matches("form[data-call]")) event.preventDefault(); });

  // Reloading a page that showed a secret once must not send its form again.
  if (one(".once")) history.replaceState(null, "", all("a[aria-current=page]").at(-1)?.href ?? location.href);
  // Replace the address of a page that answered a form by one that can be reloaded.
  const own = one("[data-address]");
  if (own) history.replaceState(null, "", own.dataset.address);
  all("[data-print]").forEach((button) => { button.hidden = false; });
  localise(document);
  remember();
  poll();
})();
