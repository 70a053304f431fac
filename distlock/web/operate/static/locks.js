// Every PERIOD milliseconds, replaces the content of #distlock-live by that of a newly fetched page.
"use strict";
(() => {
  const PERIOD = 3000;
  const live = document.getElementById("distlock-live");
  const choice = document.getElementById("distlock-refresh");
  if (!live || !choice) return;
  choice.closest("[hidden]")?.removeAttribute("hidden");

  // Replace nothing while a link has the keyboard's focus, or while a button is pressed: a button that is
  // replaced between press and release gets no click. Not every browser focuses a pressed button.
  const inUse = () => live.contains(document.activeElement) || live.matches(":active");

  async function refresh() {
    if (!choice.checked || document.hidden || inUse()) return;
    const answer = await fetch(location.href, { credentials: "same-origin" });
    // A server or a proxy is in trouble. Keep the old content: the next fetch may succeed.
    if (answer.status >= 500) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    // Ask again: the user may have begun to use the page during the fetch.
    if (!choice.checked || inUse()) return;
    const news = page.getElementById("distlock-live");
    // The session has ended: a reload of the page leads to the login.
    if (!news) location.reload();
    else live.replaceChildren(...news.childNodes);
  }

  function again() {
    // Go on after a failed fetch, too.
    setTimeout(() => refresh().catch(() => {}).finally(again), PERIOD);
  }
  again();
})();
