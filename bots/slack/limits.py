"""Slack's limits as named constants, each with the page of docs.slack.dev that states it.

Sizes are counted the way Slack counts: in UTF-16 units after `& < >` have become entities.
"""

from typing import Final

from bots.cards.throttle import RateLimit

# /reference/block-kit/blocks
BLOCKS_PER_MESSAGE: Final = 50
# /reference/block-kit/blocks/context-block; the size of a text: /reference/block-kit/composition-objects/text-object
CONTEXT_ELEMENTS: Final = 10
CONTEXT_TEXT: Final = 3_000
# /reference/block-kit/block-elements/button-element
BUTTON_TEXT: Final = 75
BUTTON_VALUE: Final = 2_000
# /reference/block-kit/blocks/section-block
SECTION_TEXT: Final = 3_000
# Ours: rich text has no documented limit, so a piece of it is kept below that of a section, and a question altogether
# below that of the markdown in a message.
RICH_TEXT_PIECE: Final = 2_900
QUESTION_ARGUMENTS: Final = 9_000
# /reference/block-kit/blocks/markdown-block: all markdown blocks of one payload together
MARKDOWN_PER_MESSAGE: Final = 12_000
# Ours: below Slack's figure, because it is not documented whether that counts before or after escaping.
MARKDOWN_BUDGET: Final = 11_000
# /reference/methods/chat.update: a longer `text` is msg_too_long
UPDATE_TEXT: Final = 4_000
# Ours: what a notification shows; the message itself is in the blocks.
NOTIFICATION_TEXT: Final = 150

# /apis/web-api/rate-limits: tier 3 is 50 calls a minute, tier 4 is 100, per method, app and workspace.
_TIER_3: Final = RateLimit(50, 60.0)
_TIER_4: Final = RateLimit(100, 60.0)
# /reference/methods/chat.update, chat.delete, conversations.replies, conversations.history, bots.info: tier 3
CHAT_UPDATE: Final = _TIER_3
CHAT_DELETE: Final = _TIER_3
CONVERSATIONS: Final = _TIER_3
BOTS_INFO: Final = _TIER_3
# /reference/methods/chat.postEphemeral, users.info: tier 4
CHAT_POST_EPHEMERAL: Final = _TIER_4
USERS_INFO: Final = _TIER_4
# /apis/web-api/rate-limits: one message a second per channel, "short bursts" allowed
CHAT_POST: Final = RateLimit(3, 3.0)

# Ours: how long a post waits for room in its channel. A longer wait comes from a 429; by then there is newer text.
POST_PATIENCE_SECONDS: Final = 5.0
# Ours: how long a card's turn waits for room. It may be long, because what is shown is chosen only when the turn comes,
# and it must be, because whoever steps out of the line during a 429 loses the order of the requests.
TURN_PATIENCE_SECONDS: Final = 600.0
# Ours: seconds between two edits of one card; faster is not seen as smoother and eats the workspace's tier.
UPDATE_FLOOR_SECONDS: Final = 1.5

# /apis/events-api and /authentication/verifying-requests-from-slack
BODY_BYTES: Final = 1_048_576
SIGNATURE_AGE_SECONDS: Final = 300
# /reference/methods/conversations.replies: page size; a card is looked for among the messages after its request
LOOKUP_PAGE: Final = 200
# Ours: pages that are read before a look-up counts as undecided.
LOOKUP_PAGES: Final = 5


def scaled(limit: RateLimit, rate_budget: float) -> RateLimit:
    """The part of a documented limit that we use: `rate_budget` 0.95 is 95 % of it, above 1 is what Slack granted."""
    return RateLimit(limit.calls, limit.per_seconds / rate_budget)
