import binascii

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bots.coordination.keys import SessionKeys, SessionParts, inbox_key, parse_session_key, session_key

nasty = st.text(alphabet=st.one_of(st.sampled_from("{}:/% \r\n\0.-_aB1é"), st.characters()), max_size=12)
parts = st.builds(SessionParts, nasty, nasty, nasty, nasty)


def key_of(p: SessionParts) -> str:
    return session_key(p.platform, p.tenant, p.chat, p.scope)


def all_keys(key: str, an_id: str = "x") -> set[str]:
    k = SessionKeys.of(key)
    by_id = {make(an_id) for make in (k.seen, k.answer, k.gone, k.by, k.dropped, k.stop_mark)}
    return {k.lease, k.run, k.queue, k.fence, k.cancel, k.engaged} | by_id


def hash_tag(key: str) -> str:
    """What Redis Cluster hashes: between the first { and the next }, when that is not empty."""
    inside = key.partition("{")[2].partition("}")[0]
    return inside or key


@pytest.mark.parametrize(
    ("made", "key"),
    [
        (("slack", "T1", "C1", "1700000000.000100"), "slack:T1:C1/1700000000.000100"),
        (("slack", "T1", "D1"), "slack:T1:D1/"),
        (("feishu", "t", "oc_1", "a/b:c"), "feishu:t:oc_1/a%2Fb%3Ac"),
    ],
)
def test_grammar(made: tuple[str, ...], key: str) -> None:
    assert session_key(*made) == key


def test_redis_keys() -> None:
    keys = SessionKeys.of("slack:T1:C1/17.1")
    assert keys.lease == "h:{slack:T1:C1}:17.1:lease"
    assert keys.gone("17.2") == "h:{slack:T1:C1}/gone:17.2"
    assert keys.active == "h:active"
    assert inbox_key("ab12") == "h:inbox:{ab12}"


@given(parts)
def test_round_trip(p: SessionParts) -> None:
    assert parse_session_key(key_of(p)) == p


@given(parts)
def test_keys_hold_nothing_that_redis_or_a_log_reads_otherwise(p: SessionParts) -> None:
    for key in all_keys(key_of(p), p.scope):
        assert key.isascii()
        assert key.isprintable()
        assert " " not in key
        assert key.count("{") == key.count("}") == 1


@given(parts, parts, nasty, nasty)
def test_different_sessions_share_no_key(one: SessionParts, two: SessionParts, id_one: str, id_two: str) -> None:
    assume(one != two)
    chat_one, chat_two = ((p.platform, p.tenant, p.chat) for p in (one, two))
    shared = all_keys(key_of(one), id_one) & all_keys(key_of(two), id_two)
    # Two threads of one chat share what belongs to the chat: dedupe, recall, message ids.
    assert not shared or (chat_one == chat_two and id_one == id_two and all("}/" in key for key in shared))


@given(parts, nasty)
def test_a_scope_cannot_be_named_into_the_keys_of_the_chat(p: SessionParts, an_id: str) -> None:
    for scope in ("seen", "gone", "by", "lease", ""):
        keys = all_keys(session_key(p.platform, p.tenant, p.chat, scope), an_id)
        assert len(keys) == 12


@given(parts, nasty, nasty)
def test_all_keys_of_a_chat_share_one_slot(p: SessionParts, scope: str, an_id: str) -> None:
    one = all_keys(key_of(p), an_id)
    two = all_keys(session_key(p.platform, p.tenant, p.chat, scope), an_id)
    assert len({binascii.crc_hqx(hash_tag(key).encode(), 0) % 16384 for key in one | two}) == 1


@pytest.mark.parametrize(
    "key", ["", "x", "a:b/c", "a:b:c", "a:b:c:d/", "a:b:{c}/", "a:b:c/d/e", "a:b:c/d e", "a:b:%63/"]
)
def test_what_is_no_session_key(key: str) -> None:
    with pytest.raises(ValueError, match="no session key"):
        SessionKeys.of(key)
