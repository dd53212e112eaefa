"""The one place of key grammar: session keys and every Redis key made from them. Pure.

Session key   `<platform>:<tenant>:<chat>/<scope>`, each part percent-escaped, the scope may be empty.
Redis, session `<prefix>:{<platform>:<tenant>:<chat>}:<scope>:<name>`
Redis, chat    `<prefix>:{<platform>:<tenant>:<chat>}/<name>:<id>`

The hash tag is the chat, because recalls, clicks and slash commands name no thread; so the keys of one chat share one
Cluster slot and a script may touch them together. The slash of chat keys keeps them apart from session keys: an
escaped scope holds neither `:` nor `/`, so no thread can be named so that its keys are another's.
"""

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote

_SAFE = "@+=,!~"


def _escape(part: str) -> str:
    # surrogatepass: a platform's id is an opaque string, and a key must never fail to be made from one.
    return quote(part, safe=_SAFE, errors="surrogatepass")


def _unescape(part: str) -> str:
    return unquote(part, errors="surrogatepass")


@dataclass(frozen=True, slots=True)
class SessionParts:
    """What a session key was made from, unescaped."""

    platform: str
    tenant: str
    chat: str
    scope: str = ""


def session_key(platform: str, tenant: str, chat: str, scope: str = "") -> str:
    """Name one session. Any strings are allowed; different parts always give different keys."""
    return f"{_escape(platform)}:{_escape(tenant)}:{_escape(chat)}/{_escape(scope)}"


def parse_session_key(key: str) -> SessionParts:
    """Invert `session_key`. Raises ValueError for anything that it cannot have made."""
    chat_part, slash, scope = key.partition("/")
    names = chat_part.split(":")
    if slash and len(names) == 3:
        platform, tenant, chat = map(_unescape, names)
        parts = SessionParts(platform, tenant, chat, _unescape(scope))
        if session_key(parts.platform, parts.tenant, parts.chat, parts.scope) == key:
            return parts
    raise ValueError(f"{key!r} is no session key: <platform>:<tenant>:<chat>/<scope>, each part percent-escaped")


def active_key(prefix: str = "h") -> str:
    """Name the sorted set session key -> due time in ms: where the sweeper looks.

    The scripts write it together with the keys of a chat, so that no crash can part them. In a Cluster it would lie in
    another slot: there it has to become a command of its own before ADMIT, where a spare entry is harmless.
    """
    return f"{prefix}:active"


def inbox_key(boot_id: str, prefix: str = "h") -> str:
    """Name the stream that brings one replica its cancel orders."""
    return f"{prefix}:inbox:{{{_escape(boot_id)}}}"


@dataclass(frozen=True, slots=True)
class SessionKeys:
    """Every Redis key of one session and its chat. Build it by `SessionKeys.of`."""

    session_key: str
    prefix: str
    _session: str
    _chat: str

    @classmethod
    def of(cls, session_key: str, prefix: str = "h") -> "SessionKeys":
        """Build the keys. Raises ValueError when `session_key` is not one."""
        return _keys_of(session_key, prefix)

    @property
    def lease(self) -> str:
        """Hash: who works on the run, for as long as the key lives."""
        return f"{self._session}lease"

    @property
    def run(self) -> str:
        """Hash: the run and its whole input, until it is finished."""
        return f"{self._session}run"

    @property
    def queue(self) -> str:
        """List: the waiting requests, in order."""
        return f"{self._session}queue"

    @property
    def fence(self) -> str:
        """The highest fence given out, or one more once that run is finished."""
        return f"{self._session}fence"

    @property
    def cancel(self) -> str:
        """Hash: the task that somebody wants stopped."""
        return f"{self._session}cancel"

    @property
    def engaged(self) -> str:
        """Exists while the bot takes part in the session."""
        return f"{self._session}engaged"

    @property
    def active(self) -> str:
        """The sweeper's index, shared by all sessions."""
        return active_key(self.prefix)

    def seen(self, dedupe_id: str) -> str:
        """Where the answer to one request is kept, for its duplicates."""
        return f"{self._chat}seen:{_escape(dedupe_id)}"

    def answer(self, token: str) -> str:
        """Where the answer is kept when the request has no dedupe id: only the caller's own repeat can ask for it."""
        return f"{self._chat}answer:{_escape(token)}"

    def gone(self, message_id: str) -> str:
        """The tombstone of a recalled message."""
        return f"{self._chat}gone:{_escape(message_id)}"

    def by(self, message_id: str) -> str:
        """Which session and task a message became."""
        return f"{self._chat}by:{_escape(message_id)}"

    def dropped(self, task_id: str) -> str:
        """The request that a cancel took out of the queue, kept a minute for a repeat of the same cancel."""
        return f"{self._session}dropped:{_escape(task_id)}"

    def once(self, name: str) -> str:
        """Set while something that may happen once per chat has happened."""
        return f"{self._chat}once:{_escape(name)}"

    def stop_mark(self, user: str) -> str:
        """Set while a stop word of this user is fresh."""
        return f"{self._session}stop:{_escape(user)}"


# Parsing costs more than everything else here, and an event uses the same session's keys several times.
@lru_cache(maxsize=4096)
def _keys_of(session_key: str, prefix: str) -> SessionKeys:
    parse_session_key(session_key)
    chat, _, scope = session_key.partition("/")
    return SessionKeys(session_key, prefix, f"{prefix}:{{{chat}}}:{scope}:", f"{prefix}:{{{chat}}}/")
