"""What a command printed: its head and its tail in bounded memory, and what is new since the last look."""

import codecs
from typing import Final

_FRESH_CHARS: Final = 500


class Output:
    """Takes bytes as they come, in any cuts; gives text. Bytes that are not UTF-8 become replacement characters.

    Keeps `head` characters of the start and `tail` of the end, and counts what is left out between them.
    """

    def __init__(self, *, head: int = 10_000, tail: int = 4_000) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head_limit = head
        self._tail_limit = tail
        self._head = ""
        self._tail = ""
        self._left_out = 0
        self._fresh = ""
        self.total_bytes = 0

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """Add what came. `last`: nothing will follow, so half a character at the end is shown as broken."""
        self.total_bytes += len(data)
        text = self._decoder.decode(data, last)
        self._fresh = (self._fresh + text)[-_FRESH_CHARS:]
        room = self._head_limit - len(self._head)
        self._head += text[:room]
        self._tail += text[room:]
        if (excess := len(self._tail) - self._tail_limit) > 0:
            self._tail = self._tail[excess:]
            self._left_out += excess

    def fresh(self) -> str:
        """The end of what came since the last call: at most 500 characters, whole lines where there are any."""
        text, self._fresh = self._fresh, ""
        if len(text) == _FRESH_CHARS:
            text = text.partition("\n")[2] or text
        return text.strip("\n")

    @property
    def text(self) -> str:
        """Head and tail, with a note of what is left out between them."""
        note = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return f"{self._head}{note}{self._tail}"
