"""Server-sent events from raw bytes, read as tolerantly as the servers write them.

Bytes in, payloads out; nothing is decoded here, so a character that is split over two reads needs no care.
"""

import orjson

from harness.errors import ProviderError

_BOM = b"\xef\xbb\xbf"
_MAX_EVENT_BYTES = 16 * 2**20
"""An answer that never ends a line would otherwise eat the memory."""


class SseReader:
    """Turns the chunks of one response body into `data` payloads, in order.

    Tolerated: a byte-order mark, LF, CRLF and CR line ends, `data:` without a space, comments, the fields `event`,
    `id` and `retry`, events without data (dropped), data on several lines (joined by LF), a last event without its
    blank line (kept by `close`). The `[DONE]` mark is never a payload: it sets `done`.

    An event that is named `error`, and a field of that name, become a payload `{"error": ...}`: older llama.cpp
    servers and some gateways report a failure that way only.

    A body that is no event stream at all (it begins with `{`, `[` or `<`) is collected in `body` instead.
    """

    __slots__ = ("_data", "_event", "_skip_lf", "_started", "_tail", "body", "done")

    def __init__(self) -> None:
        self.done = False
        self.body: bytearray | None = None
        self._tail = bytearray()
        self._data: list[bytes] = []
        self._event = b""
        self._skip_lf = False
        self._started = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The payloads that this chunk completes. Raises `ProviderError` (protocol) when an event grows too large."""
        # One whole event per read is the rule while an answer streams: it costs two searches and a slice.
        if self._started and not self._tail and not self._data and not self._event and not self._skip_lf:
            # A name goes before the data where a protocol names its events; only `error` is more than a repetition.
            start = chunk.find(b"\n") + 1 if chunk[:7] == b"event: " and chunk[:12] != b"event: error" else 0
            if (
                chunk[start : start + 6] == b"data: "
                and chunk[-2:] == b"\n\n"
                and chunk.find(b"\n", start) == len(chunk) - 2
                and b"\r" not in chunk
            ):
                payload = chunk[start + 6 : -2]
                if payload != b"[DONE]" and payload.strip():
                    return [payload]
        return self._feed(chunk)

    def close(self) -> list[bytes]:
        """The stream has ended: what was complete but for its last line ends."""
        if not self._started and self._tail:
            self._start(final=True)
        if self.body is not None:
            return []
        payloads: list[bytes] = []
        if self._tail:
            self._line(bytes(self._tail), payloads)
            self._tail.clear()
        self._dispatch(payloads)
        return payloads

    def _feed(self, chunk: bytes) -> list[bytes]:
        if self.body is not None:
            self.body += chunk
            self._check_size(len(self.body))
            return []
        if self._skip_lf and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._skip_lf = False
        self._tail += chunk
        if not self._started:
            if not self._start(final=False):
                return []
            chunk = bytes(self._tail)
        # Only what is new can hold a line end: a long line in many pieces is not searched again and again.
        if b"\n" in chunk or b"\r" in chunk:
            return self._lines()
        self._check_size(len(self._tail))
        return []

    def _lines(self) -> list[bytes]:
        data = bytes(self._tail)
        if b"\r" in data:
            # A CR at the very end may be half of a CRLF: the line ends now, and a following LF is skipped.
            self._skip_lf = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, tail = data.split(b"\n")
        self._tail = bytearray(tail)
        payloads: list[bytes] = []
        for line in lines:
            self._line(line, payloads)
        return payloads

    def _start(self, *, final: bool) -> bool:
        """Look at the first bytes, once there are enough: skip a byte-order mark, notice what is no event stream."""
        if not final and len(self._tail) < len(_BOM) and _BOM.startswith(self._tail):
            return False
        if self._tail.startswith(_BOM):
            del self._tail[: len(_BOM)]
        head = self._tail.lstrip()
        if not head and not final:
            return False
        self._started = True
        if head.startswith((b"{", b"[", b"<")):
            self.body = self._tail
            self._tail = bytearray()
        return True

    def _line(self, line: bytes, payloads: list[bytes]) -> None:
        if not line:
            self._dispatch(payloads)
            return
        field, _, value = line.partition(b":")
        if value[:1] == b" ":
            value = value[1:]
        if field == b"data":
            self._data.append(value)
            self._check_size(sum(map(len, self._data)))
        elif field == b"event":
            self._event = value.strip()
        elif field == b"error":
            payloads.append(_error(value))

    def _dispatch(self, payloads: list[bytes]) -> None:
        data = b"\n".join(self._data).strip()
        named_error = self._event == b"error"
        self._data = []
        self._event = b""
        if data == b"[DONE]":
            self.done = True
        elif data:
            payloads.append(_error(data) if named_error else data)

    def _check_size(self, size: int) -> None:
        if size > _MAX_EVENT_BYTES:
            raise ProviderError("protocol", f"The model server sent an event of more than {_MAX_EVENT_BYTES} bytes.")


def _error(value: bytes) -> bytes:
    try:
        error: object = orjson.loads(value)
    except ValueError:
        error = value.decode("utf-8", "replace")
    return orjson.dumps({"error": error})
