// Shows the page anew every few seconds: what stands in #distlock-live is replaced by what the server says now.
"use strict";
(() => {
  const PERIOD = 3000;
  const live = document.getElementById("distlock-live");
  const choice = document.getElementById("distlock-refresh");
  if (!live || !choice) return;
  choice.closest("[hidden]")?.removeAttribute("hidden");

  // A link that is about to be followed by the keyboard stays where it is; so does a button under a finger:
  // replaced between press and release it would swallow the click. Not every browser gives it the focus.
  const inUse = () => live.contains(document.activeElement) || live.matches(":active");

  async function refresh() {
    if (!choice.checked || document.hidden || inUse()) return;
    const answer = await fetch(location.href, { credentials: "same-origin" });
    // That of a server or a proxy in trouble: the next look may find it well.
    if (answer.status >= 500) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // The answer may have taken its time.
    if (!choice.checked || inUse()) return;
    const news = page.getElementById("distlock-live");
    // The session has ended: the page itself leads to the login.
    if (!news) location.reload();
    else live.replaceChildren(...news.childNodes);
  }

  function again() {
    // A server that is away for a moment is asked again.
    setTimeout(() => refresh().catch(() => {}).finally(again), PERIOD);
  }
  again();
})();
