// Builds DOM nodes, never from markup: message data only ever becomes text nodes and known attributes.

const TAGS = new Set([
  "p", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "s", "code", "pre", "ul", "ol", "li", "blockquote",
  "table", "thead", "tbody", "tr", "th", "td", "hr", "br", "span", "div", "a", "button",
]);

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "class") node.className = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

// A display tree of the server (bots/playground/slack/display.py) as nodes. `press` is called with an action id.
export function tree(node, press) {
  if (typeof node === "string") return document.createTextNode(node);
  if (!TAGS.has(node.tag)) return document.createTextNode("");
  const attrs = node.attrs ?? {};
  const children = (node.children ?? []).map((child) => tree(child, press));
  switch (node.tag) {
    case "a":
      return el("a", { href: attrs.href, target: "_blank", rel: "noreferrer noopener" }, ...children);
    case "button": {
      const on = { click: () => (!attrs.confirm || window.confirm(attrs.confirm)) && press(attrs.action) };
      return el("button", { type: "button", class: `card-button ${attrs.style ?? ""}`, "data-action": attrs.action, on }, ...children);
    }
    case "table":
      // Wide tables scroll by themselves, not the page.
      return el("div", { class: "table" }, el("table", {}, ...children));
    case "pre":
      return el("pre", { class: attrs.class, tabindex: "0" }, ...children);
    default:
      return el(node.tag, { class: attrs.class, start: attrs.start }, ...children);
  }
}
