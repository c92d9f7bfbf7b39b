"use strict";
// Keeps an open page up to date. Without this script the page is the same, and a reload does it.
const note = document.createElement("p");
note.className = "note";
note.setAttribute("role", "status");

function isSelected(part) {
  const chosen = getSelection();
  return !chosen.isCollapsed && chosen.containsNode(part, true);
}

async function refresh() {
  const parts = document.querySelectorAll("[data-live]");
  if (document.hidden || !parts.length) return;
  try {
    const answer = await fetch(location.href, { cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const found = page.getElementById(part.id);
      if (found && found.innerHTML !== part.innerHTML && !isSelected(part)) {
        part.replaceChildren(...found.childNodes);
      }
    }
    note.remove();
  } catch (error) {
    note.textContent = `Not up to date (${error.message}): reload this page.`;
    document.body.prepend(note);
  }
}

setInterval(refresh, 10000);
