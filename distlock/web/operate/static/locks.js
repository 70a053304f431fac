// Shows the page anew every few seconds: what stands in #distlock-live is replaced by what the server says now.
"use strict";
(() => {
  const PERIOD = 3000;
  const live = document.getElementById("distlock-live");
  const choice = document.getElementById("distlock-refresh");
  if (!live || !choice) return;
  choice.closest("[hidden]")?.removeAttribute("hidden");

  async function refresh() {
    // A link that is about to be followed by the keyboard stays where it is.
    if (!choice.checked || document.hidden || live.contains(document.activeElement)) return;
    const answer = await fetch(location.href, { credentials: "same-origin" });
    // That of a server or a proxy in trouble: the next look may find it well.
    if (answer.status >= 500) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const news = page.getElementById("distlock-live");
    // The session has ended: the page itself leads to the login.
    if (!news) location.reload();
    else if (choice.checked) live.replaceChildren(...news.childNodes);
  }

  function again() {
    // A server that is away for a moment is asked again.
    setTimeout(() => refresh().catch(() => {}).finally(again), PERIOD);
  }
  again();
})();
