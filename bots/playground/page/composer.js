// Where a person writes: text, the mention switch, and hints of what to try.

import { el } from "./dom.js";

const HINTS = ["calc 2*(3+4)", "long", "table", "code", "cut", "hang", "fail 429"];

export class Composer {
  // `send(text, mention)` returns a promise; the text stays in the box when it fails.
  constructor(box, { id, label, send, hints = false }) {
    this.send = send;
    this.text = el("textarea", {
      id, rows: "1", "aria-label": label, placeholder: label, autocomplete: "off",
      on: { input: () => this.fit(), keydown: (event) => this.key(event) },
    });
    this.mention = el("input", { type: "checkbox", id: `${id}-mention` });
    this.mention.checked = true;
    this.mentionLabel = el("label", { class: "mention-switch", for: `${id}-mention` }, this.mention, el("span", {}, "Mention @bot"));
    const submit = el("button", { type: "submit", class: "send" }, "Send");
    this.form = el(
      "form",
      { class: "composer", on: { submit: (event) => this.submit(event) } },
      this.text,
      el("div", { class: "row" }, this.mentionLabel, el("span", { class: "keys" }, "Enter sends, Shift+Enter starts a line"), submit),
    );
    box.replaceChildren();
    if (hints) box.append(this.hints());
    box.append(this.form);
  }

  hints() {
    const use = (hint) => () => {
      this.text.value = hint;
      this.fit();
      this.text.focus();
    };
    const buttons = HINTS.map((hint) => el("button", { type: "button", class: "hint", on: { click: use(hint) } }, hint));
    return el("div", { class: "hints", role: "group", "aria-label": "Things to try" }, el("span", {}, "Try"), ...buttons);
  }

  setChat(isChannel, label) {
    this.mentionLabel.hidden = !isChannel;
    this.text.placeholder = label;
    this.text.setAttribute("aria-label", label);
  }

  fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(this.text.scrollHeight, 220)}px`;
  }

  key(event) {
    // While an input method composes (Chinese, Japanese), Enter belongs to it.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.form.requestSubmit();
  }

  async submit(event) {
    event.preventDefault();
    const text = this.text.value.trim();
    const mention = !this.mentionLabel.hidden && this.mention.checked && !/(^|\s)@bot\b/i.test(text);
    if (!text && !mention) return;
    if (await this.send(text, mention)) {
      this.text.value = "";
      this.fit();
    }
  }
}
