// The page: who you are, which conversation you look at, and a short poll that fetches what has changed.

import { get, post, Refused } from "./api.js";
import { Composer } from "./composer.js";
import { el } from "./dom.js";
import { MessageList, avatar } from "./messages.js";

const POLL_MS = 300;
const PLATFORM = "slack";
const FAULTS = [
  ["429 on the next edit", { method: "chat.update", status: 429, retry_after_s: 3 }],
  ["Three edits fail with 500", { method: "chat.update", status: 500, times: 3 }],
  ["Ten edits take 2 s", { method: "chat.update", latency_ms: 2000, times: 10 }],
  ["Lose the answer to the next post", { method: "chat.postMessage", reset: true }],
];

const $ = (id) => document.getElementById(id);
const state = { world: null, user: "alice", chat: "general", thread: null, version: "", messages: [], awaiting: null };

const saved = (key, fallback) => sessionStorage.getItem(key) ?? fallback;
const server = () => state.world.platforms.find((platform) => platform.name === PLATFORM);
const chat = () => server().chats.find((known) => known.name === state.chat);
const title = (name) => server().users.find((user) => user.name === name)?.title ?? "Harness Bot";

const actions = {
  title,
  reply: (message) => openThread(message.thread ?? message.message),
  remove: (message) => attempt(() => post("recall", { ...place(), message: message.message, user: state.user })),
  press: (message, action) => attempt(() => post("click", { ...place(), message: message.message, action, user: state.user })),
  canRemove: (message) => message.author === state.user && !message.deleted && !message.private_to,
};
const main = new MessageList($("messages"), actions, welcome);
const thread = new MessageList($("thread-messages"), actions, () => el("p", { class: "empty" }, "This thread is gone."));
const composer = new Composer($("composer"), { id: "composer-text", label: "Message", send: (text, mention) => say(text, mention, null), hints: true });
const threadComposer = new Composer($("thread-composer"), { id: "thread-text", label: "Reply", send: (text, mention) => say(text, mention, state.thread) });
// A bot that was asked in a thread follows it without being mentioned again.
threadComposer.mention.checked = false;

function place() {
  return { platform: PLATFORM, chat: state.chat };
}

function welcome() {
  const isChannel = chat()?.kind === "channel";
  return el(
    "div",
    { class: "empty" },
    el("img", { src: "/static/bot.svg", alt: "", width: 56, height: 56 }),
    el("h3", {}, isChannel ? "Ask the bot something" : "A private word with the bot"),
    el("p", {}, isChannel
      ? "Mention it and watch one card stream the answer in a thread. Delete your message while it writes, and it stops."
      : "No mention needed here. Write, and it answers."),
  );
}

async function attempt(work) {
  try {
    await work();
    await refresh();
    return true;
  } catch (error) {
    toast(error instanceof Refused ? error.message : "The playground does not answer. Start it again with make demo.");
    return false;
  }
}

function say(text, mention, root) {
  return attempt(async () => {
    const { message } = await post("say", { ...place(), user: state.user, text, mention, thread: root });
    // The bot answers in a thread: open it when the answer begins.
    if (!root) state.awaiting = message;
    (root ? $("thread-messages") : $("messages")).scrollTop = Number.MAX_SAFE_INTEGER;
  });
}

function toast(text) {
  const box = $("toast");
  box.textContent = text;
  box.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { box.hidden = true; }, 6000);
}

function openThread(root) {
  state.thread = root;
  thread.clear();
  draw();
  $("thread-text").focus({ preventScroll: true });
}

function closeThread() {
  const root = state.thread;
  state.thread = null;
  state.awaiting = null;
  draw();
  document.querySelector(`#messages [data-message="${CSS.escape(root ?? "")}"] [data-key="replies"]`)?.focus();
}

function choose({ user = state.user, chat: name = state.chat }) {
  const visible = server().chats.filter((known) => known.members.includes(user));
  // The other person's direct messages are not yours: your own take their place.
  const kind = server().chats.find((known) => known.name === name)?.kind;
  const next = visible.find((known) => known.name === name) ?? visible.find((known) => known.kind === kind) ?? visible[0];
  if (next.name !== state.chat) Object.assign(state, { thread: null, awaiting: null });
  Object.assign(state, { user, chat: next.name, version: "", messages: [] });
  sessionStorage.setItem("user", user);
  sessionStorage.setItem("chat", next.name);
  main.clear();
  thread.clear();
  drawSidebar();
  refresh();
  $("app").classList.remove("sidebar-open");
  $("menu").setAttribute("aria-expanded", "false");
}

function drawSidebar() {
  $("people").replaceChildren(...server().users.map((user) => {
    const input = el("input", { type: "radio", name: "user", value: user.name, id: `user-${user.name}`, on: { change: () => choose({ user: user.name }) } });
    input.checked = user.name === state.user;
    return el("label", { for: input.id, title: user.title }, input, avatar(user.name), el("span", {}, user.title.split(" ")[0]));
  }));
  const mine = server().chats.filter((known) => known.members.includes(state.user));
  $("chats").replaceChildren(...mine.map((known) => {
    const icon = known.kind === "channel" ? el("span", { class: "hash", "aria-hidden": "true" }, "#") : avatar("bot");
    const label = known.kind === "channel" ? known.name : known.title;
    const current = known.name === state.chat ? "page" : null;
    return el("li", {}, el("button", { type: "button", "aria-current": current, "data-chat": known.name, on: { click: () => choose({ chat: known.name }) } }, icon, label));
  }));
  const isChannel = chat().kind === "channel";
  $("channel-title").textContent = isChannel ? `# ${state.chat}` : chat().title;
  $("channel-note").textContent = isChannel ? `${chat().members.map(title).join(", ")} and the bot` : `Direct messages of ${title(state.user)}`;
  composer.setChat(isChannel, isChannel ? `Message #${state.chat} as ${title(state.user)}` : `Message the bot as ${title(state.user)}`);
  threadComposer.setChat(isChannel, `Reply as ${title(state.user)}`);
}

function draw() {
  main.show(state.messages.filter((message) => !message.thread));
  const root = state.thread;
  $("thread").hidden = !root;
  $("app").classList.toggle("with-thread", Boolean(root));
  if (!root) return;
  const inThread = state.messages.filter((message) => message.message === root || message.thread === root);
  $("thread-note").textContent = chat().kind === "channel" ? `# ${state.chat}` : chat().title;
  thread.show(inThread, { inThread: true });
}

function drawStats(stats) {
  const calls = Object.entries(stats.calls);
  $("calls").textContent = calls.reduce((sum, [, count]) => sum + count, 0);
  $("limited").textContent = stats.rate_limited;
  $("violations").textContent = stats.violations.length;
  $("violations").classList.toggle("bad", stats.violations.length > 0);
  $("methods").replaceChildren(...calls.map(([name, count]) => el("li", {}, el("code", {}, name), el("span", {}, String(count)))));
  $("violation-list").replaceChildren(...stats.violations.map((v) => el("li", {}, el("strong", {}, v.kind), ` ${v.method}: ${v.detail}`)));
}

function drawFacts(facts) {
  $("model").textContent = facts.model ?? "";
  $("service").textContent = facts.service ?? "";
  // The hints are words of the scripted model; another one would take them for chatter.
  document.body.classList.toggle("own-model", facts.scripted === false);
}

async function refresh() {
  const asked = `${state.user} ${state.chat}`;
  const view = await get("view", { ...place(), viewer: state.user, version: state.version });
  if (view === null || asked !== `${state.user} ${state.chat}`) return;
  state.version = view.version;
  state.messages = view.messages;
  const answer = state.messages.find((message) => message.thread && message.thread === state.awaiting && message.author === "bot");
  if (answer) {
    state.thread = state.awaiting;
    state.awaiting = null;
    thread.clear();
  }
  draw();
  drawStats(view.stats);
  drawFacts(view.facts);
}

async function poll() {
  try {
    if (!document.hidden) await refresh();
    document.body.classList.remove("offline");
  } catch (error) {
    document.body.classList.add("offline");
    $("service").textContent = "The playground has stopped. Start it again with make demo.";
    state.version = "";
  }
  setTimeout(poll, POLL_MS);
}

function theme() {
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  if (localStorage.getItem("theme")) root.dataset.theme = localStorage.getItem("theme");
  $("theme").addEventListener("click", () => {
    const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
    localStorage.setItem("theme", root.dataset.theme);
  });
}

async function start() {
  theme();
  state.world = await get("world");
  const user = saved("user", "alice");
  state.user = server().users.some((known) => known.name === user) ? user : "alice";
  $("faults").replaceChildren(...FAULTS.map(([label, fault]) => {
    const order = () => attempt(async () => {
      await post("faults", { platform: PLATFORM, times: 1, ...fault });
      toast(`On order: ${label}.`);
    });
    return el("button", { type: "button", on: { click: order } }, label);
  }));
  $("thread-close").addEventListener("click", closeThread);
  $("menu").addEventListener("click", () => {
    const open = $("app").classList.toggle("sidebar-open");
    $("menu").setAttribute("aria-expanded", String(open));
  });
  const closeSidebar = () => {
    $("app").classList.remove("sidebar-open");
    $("menu").setAttribute("aria-expanded", "false");
  };
  $("messages").addEventListener("click", closeSidebar);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if ($("app").classList.contains("sidebar-open")) closeSidebar();
    else if (state.thread) closeThread();
  });
  choose({ chat: saved("chat", "general") });
  poll();
}

start();
