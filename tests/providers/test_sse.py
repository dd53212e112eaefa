from itertools import pairwise

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import ProviderError
from harness.providers.sse import SseReader

LINES = st.sampled_from(
    [
        *(b"data: {}", b"data:1", b'data: {"t": "\xe4\xbd\xa0"}', b"data: ", b"data", b"data: a:b", b"data: [DONE]"),
        *(b": comment", b"event: ping", b"id: 7", b"retry: 5", b"error: boom", b"event: error", b"nonsense"),
        *(b"", b"", b""),
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
BODIES = st.tuples(st.sampled_from([b"", b"\xef\xbb\xbf"]), st.lists(st.tuples(LINES, ENDS)), LINES).map(
    lambda parts: parts[0] + b"".join(line + end for line, end in parts[1]) + parts[2]
)


def read(chunks: list[bytes]) -> tuple[list[bytes], bool, bytes | None]:
    reader = SseReader()
    payloads = [payload for chunk in chunks for payload in reader.feed(chunk)]
    payloads += reader.close()
    return payloads, reader.done, None if reader.body is None else bytes(reader.body)


def cut(body: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(body) + 1) for place in places), len(body)]
    return [body[start:end] for start, end in pairwise(edges)]


@settings(max_examples=300, deadline=None)
@given(BODIES, st.lists(st.integers(0, 10_000), max_size=12))
def test_any_rechunking_reads_the_same(body: bytes, places: list[int]) -> None:
    expected = read([body])
    assert read(cut(body, places)) == expected
    assert read([body[i : i + 1] for i in range(len(body))]) == expected


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange(body: bytes) -> None:
    assert read([body]) == read([body[i : i + 1] for i in range(len(body))])


def test_done_is_told_from_the_end_of_the_stream() -> None:
    assert read([b"data: 1\n\n"]) == ([b"1"], False, None)
    assert read([b"data: 1\n\n", b"data: [DONE]\n\n"]) == ([b"1"], True, None)


def test_the_short_way_and_the_long_way_agree() -> None:
    event = b'data: {"a": 1}\n\n'
    assert read([event] * 3) == read([event * 3]) == ([b'{"a": 1}'] * 3, False, None)
    assert read([event, b"data: x\n\n", b"data:  \n\n", b"data: a\ndata: b\n\n"])[0][1:] == [b"x", b"a\nb"]


def test_errors_outside_data_are_payloads() -> None:
    payloads, _, _ = read([b'error: boom\n\nevent: error\ndata: {"message": "m"}\n\n'])
    assert [orjson.loads(payload) for payload in payloads] == [{"error": "boom"}, {"error": {"message": "m"}}]


@pytest.mark.parametrize("body", [b'  {"a":\n 1}', b"<html>\n\ndata: 1\n\n</html>", b"\xef\xbb\xbf[1]"])
def test_what_is_no_event_stream_is_kept_whole(body: bytes) -> None:
    payloads, done, kept = read([body])
    assert (payloads, done, kept) == ([], False, body.removeprefix(b"\xef\xbb\xbf"))


def test_an_event_without_end_is_refused() -> None:
    reader = SseReader()
    reader.feed(b"data: ")
    for _ in range(15):
        reader.feed(b"x" * 2**20)
    with pytest.raises(ProviderError) as caught:
        reader.feed(b"x" * 2**20)
    assert caught.value.kind == "protocol"
