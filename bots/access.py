"""Who may talk to the bot, stop it, and permit what it asks for. Pure; the gateway asks, nobody else decides.

Ids in the settings may carry the platform (`slack:U123`) or not (`U123`).
"""

from dataclasses import dataclass

from bots.inbound import ChatRef, UserRef


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules as configured. Empty `users` or `chats` = everyone, everywhere inside the organisation.

    `requester_approves`: people may permit the calls of their own requests, also those with side effects.
    """

    users: frozenset[str] = frozenset()
    chats: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    allow_external: bool = False
    require_mention: bool = True
    approvers: frozenset[str] = frozenset()
    requester_approves: bool = False

    @property
    def can_permit(self) -> bool:
        """Is there anybody who may permit a call with side effects?"""
        return bool(self.approvers or self.admins) or self.requester_approves

    def may_talk(self, user: UserRef, chat: ChatRef) -> bool:
        """May this person use the bot here? Bots never; administrators always."""
        if user.is_bot:
            return False
        if self.is_admin(user):
            return True
        if user.external and not self.allow_external:
            return False
        # A direct message is the person's own room: a list of chats is about groups.
        here = chat.kind == "dm" or not self.chats or _listed(self.chats, chat.platform, chat.chat)
        return here and (not self.users or _listed(self.users, user.platform, user.user))

    def may_stop(self, user: UserRef, requester: str) -> bool:
        """May this person stop what `requester` (a `UserRef.id`) asked for?"""
        return not user.is_bot and (user.id == requester or self.is_admin(user))

    def may_approve(self, user: UserRef, chat: ChatRef, requester: str, *, side_effects: bool) -> bool:
        """May this person decide, in this chat, about a call that `requester` (a `UserRef.id`) has caused?

        The one authoriser of buttons, texts and the API. Never a bot, never somebody from outside, listed or not.
        """
        if user.is_bot or user.external:
            return False
        if self.is_approver(user):
            return True
        # Who may not talk (any more) may not permit either.
        is_own = user.id == requester and self.may_talk(user, chat)
        return is_own and (self.requester_approves or not side_effects)

    def is_approver(self, user: UserRef) -> bool:
        """Is this person one of APPROVERS or ADMINS?"""
        return self.is_admin(user) or (not user.is_bot and _listed(self.approvers, user.platform, user.user))

    def is_admin(self, user: UserRef) -> bool:
        """Is this person one of ADMINS?"""
        return not user.is_bot and _listed(self.admins, user.platform, user.user)


def _listed(ids: frozenset[str], platform: str, id: str) -> bool:
    return id in ids or f"{platform}:{id}" in ids
