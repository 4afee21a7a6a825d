// The page's side of an explorer: the view, and what its controls need for the keyboard and for screen readers.

function element(parent, tag, attributes) {
  const child = parent.appendChild(document.createElement(tag));
  Object.assign(child, attributes);
  return child;
}

// JupyterLab's own shortcuts (arrows choose a cell) do not apply to controls, and the handle of a slider is called what
// its label says.
function name(box) {
  for (const control of box.querySelectorAll("select, input, button, [role=slider]"))
    control.setAttribute("data-lm-suppress-shortcuts", "");
  for (const handle of box.querySelectorAll("[role=slider]")) {
    const label = handle.closest(".jupyter-widgets").querySelector("label");
    if (label) handle.setAttribute("aria-label", label.textContent);
  }
}

// From the move of a control to the next view, which a busy kernel may let wait, the page says that it is computed.
// The view comes into the page, and so into its explorer, only after it is rendered.
async function follow(el, signal) {
  while (!el.isConnected && !signal.aborted) await new Promise(requestAnimationFrame);
  if (signal.aborted) return;
  const box = el.closest(".explorer");
  const computing = () => box.classList.add("computing");
  const clicked = event => {
    if (event.target.closest("button:not(.copy):not(.mod-active):not(:disabled)")) computing();
  };
  box.addEventListener("change", computing, { signal });
  box.addEventListener("click", clicked, { signal, capture: true });
  const observer = new MutationObserver(changes => {
    name(box);
    if (changes.some(change => change.attributeName === "aria-valuenow")) computing();
  });
  observer.observe(box, { childList: true, subtree: true, attributes: true, attributeFilter: ["aria-valuenow"] });
  signal.addEventListener("abort", () => observer.disconnect());
  name(box);
}

function render({ model, el, signal }) {
  const error = element(el, "p", { className: "error", role: "alert" });
  const said = element(el, "p", { className: "said", ariaLive: "polite" });
  const picture = element(el, "img", {});
  const line = element(el, "p", {});
  const copy = element(line, "button", { className: "copy", type: "button" });
  line.append(" ");
  const code = element(line, "code", {});
  const more = element(el, "div", {});
  copy.onclick = async () => {
    await navigator.clipboard.writeText(model.get("code"));
    copy.textContent = "Copied";
  };
  // Words and code are texts to the page, whatever is in them; only `more` is HTML.
  const show = () => {
    error.textContent = model.get("error");
    said.textContent = picture.alt = model.get("words");
    picture.src = model.get("picture");
    picture.hidden = !model.get("picture");
    code.textContent = model.get("code");
    copy.textContent = "Copy";
    line.hidden = !model.get("code");
    more.innerHTML = model.get("more");
    el.closest(".explorer")?.classList.remove("computing");
  };
  model.on("change:number", show);
  show();
  follow(el, signal);
}

export default { render };
