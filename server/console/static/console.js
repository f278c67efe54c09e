// The console's behaviour beyond links and forms: what is live, and the keyboard. Pages work without it.
"use strict";

const streams = new Map();

// A part of a page with data-live is replaced by what its address sends; with data-append, what is sent is added.
function follow(part) {
  if (streams.has(part) || document.hidden) return;
  const source = new EventSource(part.dataset.live);
  streams.set(part, source);
  source.onopen = () => part.removeAttribute("data-stale");
  source.onerror = () => part.setAttribute("data-stale", "");
  source.onmessage = (event) => {
    if (part.contains(document.activeElement) && document.activeElement !== document.body &&
        document.activeElement.matches("input, select, textarea")) return;
    if (part.hasAttribute("data-append")) {
      append(part, event.data);
      return;
    }
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.innerHTML = event.data;
    if (focused !== null) {
      const again = [...part.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
    }
    localTimes(part);
  };
}

function append(part, html) {
  const rows = document.createElement("template");
  rows.innerHTML = html;
  localTimes(rows.content);
  part.prepend(...[...rows.content.children].reverse());
  while (part.children.length > 500) part.lastElementChild.remove();
  const empty = document.querySelector("[data-until-rows]");
  if (empty && part.children.length) empty.hidden = true;
}

function stop(part) {
  const source = streams.get(part);
  if (source) source.close();
  streams.delete(part);
}

function followAll() {
  for (const part of streams.keys()) if (!part.isConnected || document.hidden) stop(part);
  if (!document.hidden) document.querySelectorAll("[data-live]:not([data-paused])").forEach(follow);
}

document.addEventListener("visibilitychange", followAll);
document.addEventListener("htmx:afterSettle", () => { followAll(); localTimes(document); });
window.addEventListener("pagehide", () => [...streams.keys()].forEach(stop));

document.addEventListener("click", (event) => {
  const target = event.target.closest("button");
  if (!target) return;
  if (target.matches("[data-help]")) document.getElementById("help").showModal();
  if (target.matches("[data-pause]")) {
    const part = document.getElementById(target.dataset.pause);
    const paused = part.toggleAttribute("data-paused");
    target.setAttribute("aria-pressed", String(paused));
    target.textContent = paused ? "Go on" : "Pause";
    if (paused) stop(part); else follow(part);
  }
  if (target.matches("[data-copy]")) {
    navigator.clipboard.writeText(document.getElementById(target.dataset.copy).textContent);
    target.textContent = "Copied";
  }
});

// Times come as UTC; their titles say what that is here.
function localTimes(root) {
  root.querySelectorAll("time[datetime]").forEach((each) => {
    const when = new Date(each.dateTime);
    if (!Number.isNaN(when.getTime())) each.title = `${each.dateTime}, here ${when.toLocaleString()}`;
  });
}

// Selecting something in these forms is enough.
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

let afterG = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select, textarea")) {
    if (event.key === "Escape") { event.preventDefault(); event.target.blur(); } // a search field would be emptied
    return;
  }
  const key = event.key;
  if (afterG && Date.now() - afterG < 1500) {
    afterG = 0;
    const link = document.querySelector(`nav.side a[data-key="${CSS.escape(key)}"]`);
    if (link) { event.preventDefault(); link.click(); }
    return;
  }
  if (key === "g") afterG = Date.now();
  else if (key === "?") document.getElementById("help").showModal();
  else if (key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) { event.preventDefault(); filter.focus(); filter.select(); }
  } else if (key === "n" || key === "p") {
    const link = document.querySelector(`.pager a[rel=${key === "n" ? "next" : "prev"}]`);
    if (link) link.click();
  } else if (key === "j" || key === "k") {
    const links = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a[href], summary")).filter(Boolean);
    if (!links.length) return;
    const at = links.indexOf(document.activeElement.closest("tr")?.querySelector("a[href], summary"));
    const next = at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + (key === "j" ? 1 : -1)));
    links[next].focus();
  }
});

localTimes(document);
followAll();
