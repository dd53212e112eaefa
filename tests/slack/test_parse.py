from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bots.inbound import (
    BotRemoved,
    ButtonClicked,
    ChatRef,
    Inbound,
    MessageEdited,
    MessageRecalled,
    MessageReceived,
    MessageRef,
)
from bots.slack.parse import MalformedPayload, parse_command, parse_event, parse_interaction
from tests.slack.payloads import (
    ALICE,
    APP,
    BOB,
    BOT,
    BOT_USER,
    CHANNEL,
    DM,
    IDENTITY,
    LATER,
    TEAM,
    TS,
    changed,
    click,
    command,
    deleted,
    envelope,
    mention,
    message,
    rich_text,
    section,
    words,
)

ROOM = ChatRef("slack", TEAM, CHANNEL, TS, "group")


def received(event: dict[str, Any], **fields: Any) -> MessageReceived:
    inbound = parse_event(envelope(event, **fields), IDENTITY)
    assert isinstance(inbound, MessageReceived)
    return inbound


# -- messages


def test_a_channel_message_starts_its_own_thread() -> None:
    inbound = received(message("hello &amp; bye"))
    assert inbound.ref == MessageRef(ROOM, TS)
    assert (inbound.text, inbound.mentions_bot, inbound.in_thread) == ("hello & bye", False, False)
    assert inbound.sent_at == pytest.approx(1750000000.0001)
    assert (inbound.sender.id, inbound.sender.external, inbound.sender.is_bot) == (f"slack:{ALICE}", False, False)
    assert inbound.dedupe_id == f"slack:{APP}:{TEAM}:{CHANNEL}:{TS}"


def test_a_thread_reply() -> None:
    inbound = received(message("more", ts=LATER, event_ts=LATER, thread_ts=TS, parent_user_id=BOB))
    assert inbound.ref == MessageRef(ROOM, LATER)
    assert inbound.in_thread


def test_a_parent_names_its_own_thread() -> None:
    assert not received(message(thread_ts=TS)).in_thread


def test_a_direct_message_is_one_conversation() -> None:
    inbound = received(message(channel=DM, channel_type="im"))
    assert inbound.ref.chat == ChatRef("slack", TEAM, DM, "", "dm")


def test_a_thread_in_a_direct_message_is_its_own() -> None:
    inbound = received(message(channel=DM, channel_type="im", ts=LATER, thread_ts=TS))
    assert inbound.ref.chat == ChatRef("slack", TEAM, DM, TS, "dm")


@pytest.mark.parametrize(
    ("channel", "channel_type", "kind"),
    [
        (DM, "im", "dm"),
        (DM, None, "dm"),
        (DM, "app_home", "dm"),
        (CHANNEL, None, "group"),
        (CHANNEL, "group", "group"),
        ("G0FEW", "mpim", "group"),
    ],
)
def test_kind_of_chat(channel: str, channel_type: str | None, kind: str) -> None:
    assert received(message(channel=channel, channel_type=channel_type)).ref.chat.kind == kind


@pytest.mark.parametrize("first", ["message", "app_mention"])
def test_both_deliveries_of_a_mention_are_the_same(first: str) -> None:
    text = f"<@{BOT_USER}> what is up?"
    pair = {"message": received(message(text)), "app_mention": received(mention(text), is_ext_shared_channel=None)}
    one = pair.pop(first)
    (other,) = pair.values()
    assert one == other
    assert one.mentions_bot
    assert one.text == "what is up?"


def test_a_mention_in_blocks_alone_counts() -> None:
    blocks = rich_text(section({"type": "user", "user_id": BOT_USER}, words(" go")))
    inbound = received(message("", blocks=blocks))
    assert (inbound.mentions_bot, inbound.text) == (True, "go")


def test_code_in_blocks_wins_over_text() -> None:
    blocks = rich_text({"type": "rich_text_preformatted", "elements": [words("x < y")]})
    assert received(message("```x &lt; y```", blocks=blocks)).text == "```\nx < y\n```"


def test_event_ts_stands_in_for_ts() -> None:
    assert received(mention(ts=None)).ref.message == TS


@pytest.mark.parametrize(
    ("fields", "text", "unsupported"),
    [
        ({"text": "", "subtype": "file_share", "files": [{"id": "F1"}]}, "", "file"),
        ({"text": "look", "subtype": "file_share", "files": [{"id": "F1"}]}, "look", ""),
        ({"text": f"<@{BOT_USER}>", "files": [{"id": "F1"}]}, "", "file"),
        ({"text": "", "attachments": [{"fallback": "x"}]}, "", "attachment"),
        ({"text": f"<@{BOT_USER}>"}, "", ""),
    ],
)
def test_what_cannot_be_read(fields: dict[str, Any], text: str, unsupported: str) -> None:
    inbound = received(message(**fields))
    assert (inbound.text, inbound.unsupported) == (text, unsupported)


@pytest.mark.parametrize("subtype", [None, "file_share", "thread_broadcast", "me_message"])
def test_subtypes_that_people_write(subtype: str | None) -> None:
    assert received(message(subtype=subtype)).sender.user == ALICE


@pytest.mark.parametrize(
    "subtype",
    [
        "message_replied",
        "channel_join",
        "channel_leave",
        "channel_topic",
        "channel_purpose",
        "channel_name",
        "channel_unarchive",
        "group_join",
        "group_topic",
        "pinned_item",
        "ekm_access_denied",
        "tombstone",
        "assistant_app_thread",
        "bot_add",
        "reminder_add",
        "something_new",
    ],
)
def test_subtypes_that_are_nothing_for_us(subtype: str) -> None:
    assert parse_event(envelope(message(subtype=subtype)), IDENTITY) is None


# -- bots and Slack itself


@pytest.mark.parametrize(
    "fields",
    [
        {"user": BOT_USER},
        {"user": BOT_USER, "bot_id": BOT, "app_id": APP},
        {"user": None, "bot_id": BOT, "subtype": "bot_message"},
        {"user": "U0ANY", "bot_id": "B0ANY", "app_id": APP},
        {"user": None, "bot_profile": {"id": BOT, "app_id": APP}},
        {"user": "USLACKBOT"},
        {"user": "USLACK"},
        {"user": None},
    ],
)
def test_our_own_messages_and_slacks_are_nothing_for_us(fields: dict[str, Any]) -> None:
    assert parse_event(envelope(message(**fields)), IDENTITY) is None


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({"user": "U0OTHERBOT", "bot_id": "B0OTHER", "app_id": "A0OTHER"}, "U0OTHERBOT"),
        ({"user": None, "bot_id": "B0HOOK", "subtype": "bot_message"}, "B0HOOK"),
    ],
)
def test_other_bots_are_marked_as_bots(fields: dict[str, Any], user: str) -> None:
    sender = received(message(**fields)).sender
    assert (sender.user, sender.is_bot) == (user, True)


# -- Slack Connect


@pytest.mark.parametrize(
    ("shared", "fields", "external"),
    [
        (True, {"user_team": "T0AWAY"}, True),
        (True, {"team": "T0AWAY"}, True),
        (True, {"user_team": "T0AWAY", "team": TEAM}, True),
        (True, {"team": None, "user_profile": {"team": "T0AWAY"}}, True),
        (True, {"team": None, "user_profile": {"team": TEAM}}, False),
        (True, {"team": TEAM}, False),
        (True, {"team": None}, True),
        (False, {"team": "T0SISTER"}, False),
        (False, {"team": None}, False),
        (None, {"team": None}, False),
        (None, {"user_team": "T0AWAY"}, True),
    ],
)
def test_who_is_external(shared: bool | None, fields: dict[str, Any], external: bool) -> None:
    assert received(message(**fields), is_ext_shared_channel=shared).sender.external is external


def test_own_organisation_is_not_external() -> None:
    authorization = {"enterprise_id": "E0ORG", "team_id": TEAM, "user_id": BOT_USER, "is_enterprise_install": False}
    inbound = received(message(user_team="E0ORG"), is_ext_shared_channel=True, authorizations=[authorization])
    assert not inbound.sender.external


def test_the_installation_counts_not_the_top_level_team() -> None:
    assert received(message(), team_id="T0AWAY").ref.chat.tenant == TEAM


def test_another_installation_of_the_app_is_nothing_for_us() -> None:
    foreign = [{"enterprise_id": None, "team_id": "T0AWAY", "user_id": "U0X", "is_enterprise_install": False}]
    assert parse_event(envelope(message(), authorizations=foreign), IDENTITY) is None


# -- edits


OLD = {"type": "message", "user": ALICE, "text": "old", "ts": TS, "team": TEAM}
NEW = OLD | {"text": "new", "edited": {"user": ALICE, "ts": LATER}}


def test_an_edit_by_a_person() -> None:
    inbound = parse_event(envelope(changed(NEW, OLD)), IDENTITY)
    assert isinstance(inbound, MessageEdited)
    assert (inbound.ref, inbound.text, inbound.sender.user) == (MessageRef(ROOM, TS), "new", ALICE)


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (OLD | {"text": "new"}, OLD),
        (OLD | {"edited": {"user": ALICE, "ts": LATER}}, OLD),
        (OLD | {"edited": {"user": ALICE, "ts": LATER}}, None),
        ({key: value for key, value in NEW.items() if key != "user"}, OLD),
        ({key: value for key, value in NEW.items() if key != "ts"}, OLD),
    ],
)
def test_forms_of_an_edit(after: dict[str, Any], before: dict[str, Any] | None) -> None:
    inbound = parse_event(envelope(changed(after, before)), IDENTITY)
    assert isinstance(inbound, MessageEdited)
    assert inbound.sender.user == ALICE


@pytest.mark.parametrize(
    ("after", "before"),
    [
        (OLD | {"attachments": [{"from_url": "https://a.example"}]}, OLD),
        (OLD | {"reply_count": 1, "thread_ts": TS}, OLD),
        (NEW, NEW),
        (OLD, None),
        (NEW | {"bot_id": BOT, "app_id": APP}, OLD),
        (NEW | {"user": BOT_USER}, OLD),
        (NEW | {"bot_id": "B0OTHER"}, OLD),
        ({"type": "message", "text": "new", "ts": TS, "bot_id": BOT}, {"text": "old", "ts": TS}),
    ],
)
def test_changes_that_are_no_edit_by_a_person(after: dict[str, Any], before: dict[str, Any] | None) -> None:
    assert parse_event(envelope(changed(after, before)), IDENTITY) is None


# -- recall


TOMBSTONE = {
    "type": "message",
    "subtype": "tombstone",
    "user": "USLACKBOT",
    "text": "This message was deleted.",
    "hidden": True,
    "ts": TS,
    "thread_ts": TS,
    "reply_count": 1,
}


@pytest.mark.parametrize(
    "event",
    [
        deleted(previous_message=OLD),
        deleted(),
        deleted(previous_message=TOMBSTONE),
        deleted(deleted_ts="", previous_message=OLD),
        changed(TOMBSTONE, OLD),
        changed(TOMBSTONE, None),
    ],
)
def test_forms_of_a_recall(event: dict[str, Any]) -> None:
    assert parse_event(envelope(event), IDENTITY) == MessageRecalled(MessageRef(ROOM, TS))


def test_recall_of_a_reply_names_its_thread() -> None:
    event = deleted(deleted_ts=LATER, previous_message=OLD | {"ts": LATER, "thread_ts": TS})
    assert parse_event(envelope(event), IDENTITY) == MessageRecalled(MessageRef(ROOM, LATER))


def test_recall_in_a_direct_message() -> None:
    event = deleted(channel=DM, channel_type="im", previous_message=OLD)
    assert parse_event(envelope(event), IDENTITY) == MessageRecalled(
        MessageRef(ChatRef("slack", TEAM, DM, "", "dm"), TS)
    )


def test_the_deletion_of_our_own_card_is_told_too() -> None:
    event = deleted(previous_message={"user": BOT_USER, "bot_id": BOT, "ts": TS, "text": "x"})
    assert isinstance(parse_event(envelope(event), IDENTITY), MessageRecalled)


# -- the bot leaves


@pytest.mark.parametrize(
    "event",
    [
        {"type": "channel_archive", "channel": CHANNEL, "user": ALICE},
        {"type": "group_archive", "channel": CHANNEL, "user": ALICE},
        {"type": "channel_deleted", "channel": CHANNEL},
        {"type": "channel_left", "channel": CHANNEL, "actor_id": ALICE},
        {"type": "group_left", "channel": CHANNEL, "actor_id": ALICE},
        {"type": "member_left_channel", "channel": CHANNEL, "user": BOT_USER},
        message(subtype="channel_archive"),
        message(subtype="group_archive"),
    ],
)
def test_the_chat_is_over(event: dict[str, Any]) -> None:
    assert parse_event(envelope(event), IDENTITY) == BotRemoved(ChatRef("slack", TEAM, CHANNEL))


def test_somebody_else_leaves() -> None:
    event = {"type": "member_left_channel", "channel": CHANNEL, "user": ALICE}
    assert parse_event(envelope(event), IDENTITY) is None


# -- what is nothing for us, and what is malformed


@pytest.mark.parametrize(
    "body",
    [
        {"type": "app_rate_limited", "team_id": TEAM, "minute_rate_limited": 1750000000, "api_app_id": APP},
        envelope({"type": "reaction_added", "user": ALICE}),
        envelope({"type": "app_home_opened", "user": ALICE, "channel": DM}),
        {"type": "event_of_tomorrow"},
    ],
)
def test_nothing_for_us(body: dict[str, Any]) -> None:
    assert parse_event(body, IDENTITY) is None


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": 7},
        {"type": "event_callback"},
        envelope("a string"),
        envelope([1]),
        envelope({}),
        envelope({"type": 1}),
        envelope(message(channel=None)),
        envelope(message(channel=7)),
        envelope(message(channel="")),
        envelope(message(ts=None, event_ts=None)),
        envelope(message(ts="yesterday")),
        envelope(message(ts="nan")),
        envelope(changed(OLD, OLD) | {"message": "x"}),
        envelope(changed({"text": "x"}, None)),
        envelope(deleted(deleted_ts=None)),
        envelope({"type": "channel_archive"}),
    ],
)
def test_malformed(body: dict[str, Any]) -> None:
    with pytest.raises(MalformedPayload):
        parse_event(body, IDENTITY)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.just(TS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(st.sampled_from([*message(subtype="", thread_ts="", blocks=[], files=[], bot_id="")]), json),
    st.sampled_from([message(), mention(), changed(NEW, OLD), deleted()]),
    st.dictionaries(st.sampled_from(["authorizations", "is_ext_shared_channel", "api_app_id"]), json),
)
def test_odd_fields_are_refused_or_ignored(odd: dict[str, Any], event: dict[str, Any], outer: dict[str, Any]) -> None:
    try:
        inbound = parse_event(envelope(event | odd, **outer), IDENTITY)
    except MalformedPayload:
        return
    assert inbound is None or isinstance(inbound, Inbound)


# -- clicks


def test_a_click_in_a_thread() -> None:
    inbound = parse_interaction(click(), IDENTITY)
    assert isinstance(inbound, ButtonClicked)
    assert inbound.ref == MessageRef(ROOM, LATER)
    assert (inbound.action, inbound.value, inbound.user.user) == ("stop", "task-1", ALICE)
    assert inbound.private_reply.startswith("https://hooks.slack.com/")


def test_a_click_in_a_direct_message() -> None:
    container = {"type": "message", "message_ts": LATER, "channel_id": DM}
    inbound = parse_interaction(click(container=container, channel={"id": DM}), IDENTITY)
    assert isinstance(inbound, ButtonClicked)
    assert inbound.ref.chat == ChatRef("slack", TEAM, DM, "", "dm")


@pytest.mark.parametrize(
    ("user", "enterprise", "external"),
    [
        ({"id": BOB, "team_id": TEAM}, None, False),
        ({"id": BOB, "team_id": "T0AWAY"}, None, True),
        ({"id": BOB, "team_id": "E0ORG"}, {"id": "E0ORG"}, False),
        ({"id": BOB}, None, False),
    ],
)
def test_who_clicked(user: dict[str, Any], enterprise: dict[str, Any] | None, external: bool) -> None:
    inbound = parse_interaction(click(user=user, enterprise=enterprise), IDENTITY)
    assert isinstance(inbound, ButtonClicked)
    assert inbound.user.external is external


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "view_submission", "view": {}},
        {"type": "shortcut"},
        click(container={"type": "view"}, channel=None),
    ],
)
def test_interactions_that_are_nothing_for_us(payload: dict[str, Any]) -> None:
    assert parse_interaction(payload, IDENTITY) is None


@pytest.mark.parametrize(
    "payload",
    [{}, click(actions=[]), click(actions="x"), click(actions=["x"]), click(user="x"), click(actions=[{"value": "x"}])],
)
def test_malformed_interactions(payload: dict[str, Any]) -> None:
    with pytest.raises(MalformedPayload):
        parse_interaction(payload, IDENTITY)


# -- commands


def test_a_command_is_a_message_to_the_bot_without_a_thread() -> None:
    inbound = parse_command(command(text="now &amp; here"), IDENTITY, sent_at=5.0)
    assert isinstance(inbound, MessageReceived)
    assert (inbound.text, inbound.mentions_bot, inbound.sent_at) == ("/stop now & here", True, 5.0)
    assert inbound.ref == MessageRef(ChatRef("slack", TEAM, CHANNEL, "", "group"), "")
    assert inbound.dedupe_id == f"slack:{APP}:{TEAM}:{CHANNEL}:command:123.456.cmd"


def test_a_command_in_a_direct_message() -> None:
    inbound = parse_command(command(channel_id=DM), IDENTITY, sent_at=5.0)
    assert isinstance(inbound, MessageReceived)
    assert inbound.ref.chat.kind == "dm"


@pytest.mark.parametrize("key", ["channel_id", "user_id", "command"])
def test_malformed_commands(key: str) -> None:
    form = command()
    del form[key]
    with pytest.raises(MalformedPayload):
        parse_command(form, IDENTITY, sent_at=5.0)
