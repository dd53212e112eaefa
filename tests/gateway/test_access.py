"""Who may talk, who may stop: a table over every combination that differs."""

from itertools import product

import pytest

from bots.access import AccessRules
from bots.inbound import ChatKind, ChatRef, UserRef


def user(id: str = "U1", *, external: bool = False, bot: bool = False, platform: str = "slack") -> UserRef:
    return UserRef(platform, "T", id, external, bot)


def chat(id: str = "C1", kind: ChatKind = "group", platform: str = "slack") -> ChatRef:
    return ChatRef(platform, "T", id, kind=kind)


def rules(*, users: str = "", chats: str = "", admins: str = "", external: bool = False) -> AccessRules:
    return AccessRules(frozenset(users.split()), frozenset(chats.split()), frozenset(admins.split()), external)


# Who may talk: (rules, user, chat, may).
TALK = {
    "everyone inside, everywhere": (rules(), user(), chat(), True),
    "nobody from outside": (rules(), user(external=True), chat(), False),
    "nor in a direct message": (rules(), user(external=True), chat(kind="dm"), False),
    "unless allowed": (rules(external=True), user(external=True), chat(), True),
    "no bot": (rules(), user(bot=True), chat(), False),
    "no bot, listed or not": (rules(users="U1", admins="U1", external=True), user(bot=True), chat(), False),
    "listed": (rules(users="U1 U2"), user(), chat(), True),
    "not listed": (rules(users="U2"), user(), chat(), False),
    "listed with the platform": (rules(users="slack:U1"), user(), chat(), True),
    "listed for another platform": (rules(users="feishu:U1"), user(), chat(), False),
    "no part of an id": (rules(users="U11 U"), user(), chat(), False),
    "case counts": (rules(users="u1"), user(), chat(), False),
    "listed, but from outside": (rules(users="U1"), user(external=True), chat(), False),
    "from outside, allowed, not listed": (rules(users="U2", external=True), user(external=True), chat(), False),
    "a listed chat": (rules(chats="C1"), user(), chat(), True),
    "a listed chat with the platform": (rules(chats="slack:C1"), user(), chat(), True),
    "another chat": (rules(chats="C2"), user(), chat(), False),
    "a chat of another platform": (rules(chats="feishu:C1"), user(), chat(), False),
    "a direct message is one's own room": (rules(chats="C2"), user(), chat("D1", "dm"), True),
    "but not for those who are not listed": (rules(users="U2", chats="C2"), user(), chat("D1", "dm"), False),
    "both lists": (rules(users="U1", chats="C1"), user(), chat(), True),
    "one of both": (rules(users="U1", chats="C2"), user(), chat(), False),
    "an administrator, always": (rules(users="U2", chats="C2", admins="slack:U1"), user(external=True), chat(), True),
    "an administrator of another platform": (rules(users="U2", admins="feishu:U1"), user(), chat(), False),
}


@pytest.mark.parametrize("case", TALK)
def test_who_may_talk(case: str) -> None:
    given, who, where, may = TALK[case]
    assert given.may_talk(who, where) is may


# Who may stop what slack:U1 asked for.
STOP = {
    "the requester": (rules(), user(), True),
    "somebody else": (rules(), user("U2"), False),
    "the same id elsewhere": (rules(), user(platform="feishu"), False),
    "an administrator": (rules(admins="U2"), user("U2"), True),
    "an administrator of another platform": (rules(admins="feishu:U2"), user("U2"), False),
    "a bot that is called like the requester": (rules(), user(bot=True), False),
    "a bot that is called like an administrator": (rules(admins="U2"), user("U2", bot=True), False),
    "the requester, who may not talk any more": (rules(users="U9"), user(), True),
    "somebody without an id": (rules(), user(""), False),
}


@pytest.mark.parametrize("case", STOP)
def test_who_may_stop(case: str) -> None:
    given, who, may = STOP[case]
    assert given.may_stop(who, "slack:U1") is may


def test_a_bot_may_never_do_anything() -> None:
    everything = rules(users="U1", chats="C1", admins="U1", external=True)
    for external, kind in product([False, True], ["group", "dm"]):
        bot = user(external=external, bot=True)
        assert not everything.may_talk(bot, chat(kind=kind))  # type: ignore[arg-type]
        assert not everything.is_admin(bot)
