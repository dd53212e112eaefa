// A list of messages, updated in place: an element is rebuilt only when its message has changed.

import { el, tree } from "./dom.js";

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

export function avatar(name) {
  if (name === "bot") return el("img", { class: "avatar", src: "/static/bot.svg", alt: "", width: 36, height: 36 });
  return el("span", { class: `avatar of-${name}`, "aria-hidden": "true" }, name.slice(0, 1).toUpperCase());
}

export class MessageList {
  // `actions`: {reply(message), remove(message), press(message, action), canRemove(message), title(author)}
  constructor(box, actions, empty) {
    this.box = box;
    this.actions = actions;
    this.empty = empty;
    this.shown = new Map();
  }

  clear() {
    this.shown.clear();
    this.box.replaceChildren();
  }

  show(messages, { inThread = false } = {}) {
    const atEnd = this.box.scrollHeight - this.box.scrollTop - this.box.clientHeight < 80;
    const keep = new Set(messages.map((message) => message.message));
    for (const [id, { node }] of this.shown) {
      if (keep.has(id)) continue;
      node.remove();
      this.shown.delete(id);
    }
    this.box.querySelector(".empty")?.remove();
    if (!messages.length) this.box.append(this.empty());
    messages.forEach((message, index) => {
      const state = JSON.stringify([message, inThread, this.actions.canRemove(message)]);
      const old = this.shown.get(message.message);
      if (old?.state === state) return;
      const node = this.build(message, inThread);
      if (old) {
        const action = old.node.contains(document.activeElement) ? document.activeElement.dataset.key : null;
        old.node.replaceWith(node);
        // Whoever was on a button of this message with the keyboard stays there.
        if (action) node.querySelector(`[data-key="${CSS.escape(action)}"]`)?.focus();
      } else {
        this.box.insertBefore(node, this.box.children[index] ?? null);
      }
      this.shown.set(message.message, { node, state });
    });
    if (atEnd) this.box.scrollTop = this.box.scrollHeight;
  }

  build(message, inThread) {
    const { actions } = this;
    const isBot = message.author === "bot";
    const when = new Date(message.at * 1000);
    const name = actions.title(message.author);
    const head = el(
      "p",
      { class: "head" },
      el("strong", {}, name),
      isBot && el("span", { class: "badge" }, "APP"),
      el("time", { datetime: when.toISOString(), title: when.toLocaleString() }, time.format(when)),
      message.edited && el("span", { class: "edited" }, "(edited)"),
      message.private_to && el("span", { class: "private" }, "Only visible to you"),
    );
    const body = el("div", { class: "content" });
    if (message.tombstone) body.append(el("p", { class: "tombstone" }, message.text));
    else body.append(...message.content.map((node) => tree(node, (action) => actions.press(message, action))));
    const foot = el("div", { class: "foot" });
    if (message.reactions.length) {
      foot.append(...message.reactions.map((r) => el("span", { class: "reaction" }, `${r.shown} ${r.count}`)));
    }
    if (!inThread && message.replies) {
      const label = message.replies === 1 ? "1 reply" : `${message.replies} replies`;
      const on = { click: () => actions.reply(message) };
      foot.append(el("button", { type: "button", class: "replies", "data-key": "replies", on }, label));
    }
    if (message.status) foot.append(el("span", { class: "status" }, `${actions.title("bot")} ${message.status}`));
    const tools = el("div", { class: "tools" });
    if (!inThread && !message.private_to) {
      const on = { click: () => actions.reply(message) };
      tools.append(el("button", { type: "button", "data-key": "reply", "aria-label": `Reply to ${name} in a thread`, on }, "Reply in thread"));
    }
    if (actions.canRemove(message)) {
      const on = { click: () => actions.remove(message) };
      tools.append(el("button", { type: "button", class: "danger", "data-key": "delete", "aria-label": "Delete this message", on }, "Delete"));
    }
    return el(
      "article",
      {
        class: `message ${message.tombstone ? "gone" : ""} ${message.private_to ? "ephemeral" : ""}`,
        "data-message": message.message,
        "data-author": message.author,
        "aria-label": `${name}, ${time.format(when)}`,
      },
      avatar(message.tombstone ? "" : message.author),
      el("div", { class: "column" }, !message.tombstone && head, body, foot.childElementCount ? foot : null),
      tools.childElementCount && !message.tombstone ? tools : null,
    );
  }
}
