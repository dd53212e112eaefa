"""Who may talk to the bot, and who may stop it. Pure; the gateway asks, nobody else decides.

Ids in the settings may carry the platform (`slack:U123`) or not (`U123`).
"""

from dataclasses import dataclass

from bots.inbound import ChatRef, UserRef


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The rules as configured. Empty `users` or `chats` = everyone, everywhere inside the organisation."""

    users: frozenset[str] = frozenset()
    chats: frozenset[str] = frozenset()
    admins: frozenset[str] = frozenset()
    allow_external: bool = False
    require_mention: bool = True

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

    def is_admin(self, user: UserRef) -> bool:
        """Is this person one of ADMINS?"""
        return not user.is_bot and _listed(self.admins, user.platform, user.user)


def _listed(ids: frozenset[str], platform: str, id: str) -> bool:
    return id in ids or f"{platform}:{id}" in ids
