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


def approving(*, approvers: str = "", requester: bool = False, users: str = "", admins: str = "") -> AccessRules:
    return AccessRules(
        frozenset(users.split()),
        admins=frozenset(admins.split()),
        allow_external=True,
        approvers=frozenset(approvers.split()),
        requester_approves=requester,
    )


# Who may permit what slack:U1 asked for: (rules, user, a call that only looks, a call with side effects).
APPROVE = {
    "the requester": (approving(), user(), True, False),
    "the requester, when allowed": (approving(requester=True), user(), True, True),
    "the requester, who may not talk any more": (approving(requester=True, users="U9"), user(), False, False),
    "somebody else": (approving(requester=True), user("U2"), False, False),
    "the same id elsewhere": (approving(requester=True), user(platform="feishu"), False, False),
    "an approver": (approving(approvers="U2"), user("U2"), True, True),
    "an approver by platform": (approving(approvers="slack:U2"), user("U2"), True, True),
    "an approver of another platform": (approving(approvers="feishu:U2"), user("U2"), False, False),
    "an approver who may not talk": (approving(approvers="U2", users="U1"), user("U2"), True, True),
    "an administrator": (approving(admins="U2"), user("U2"), True, True),
    "an approver from outside": (approving(approvers="U2"), user("U2", external=True), False, False),
    "an administrator from outside": (approving(admins="U2"), user("U2", external=True), False, False),
    "the requester from outside": (approving(requester=True), user(external=True), False, False),
    "a bot that is called like an approver": (approving(approvers="U2"), user("U2", bot=True), False, False),
    "a bot that is called like the requester": (approving(requester=True), user(bot=True), False, False),
    "somebody without an id": (approving(requester=True), user(""), False, False),
}


@pytest.mark.parametrize("case", APPROVE)
def test_who_may_approve(case: str) -> None:
    given, who, looks, writes = APPROVE[case]
    assert given.may_approve(who, chat(), "slack:U1", side_effects=False) is looks
    assert given.may_approve(who, chat(), "slack:U1", side_effects=True) is writes


def test_whether_anybody_may_permit_a_call_with_side_effects() -> None:
    assert not rules().can_permit
    assert [approving(approvers="U2").can_permit, approving(admins="U2").can_permit] == [True, True]
    assert approving(requester=True).can_permit


def test_a_bot_may_never_do_anything() -> None:
    everything = rules(users="U1", chats="C1", admins="U1", external=True)
    for external, kind in product([False, True], ["group", "dm"]):
        bot = user(external=external, bot=True)
        assert not everything.may_talk(bot, chat(kind=kind))  # type: ignore[arg-type]
        assert not everything.is_admin(bot)
