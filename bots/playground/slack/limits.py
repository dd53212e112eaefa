"""Slack's limits, each with the page that states it. Own table on purpose: nothing here is shared with the adapter."""

from __future__ import annotations

# docs.slack.dev/reference/block-kit/blocks (messages; modals allow 100)
BLOCKS_PER_MESSAGE = 50
# docs.slack.dev/reference/block-kit/blocks: block_id of every block
BLOCK_ID = 255
# docs.slack.dev/reference/block-kit/blocks/markdown-block: one block, and all markdown blocks of a payload together
MARKDOWN_TEXT = 12_000
MARKDOWN_TEXT_PER_MESSAGE = 12_000
# docs.slack.dev/reference/block-kit/blocks/section-block
SECTION_TEXT = 3_000
SECTION_FIELDS = 10
SECTION_FIELD_TEXT = 2_000
# docs.slack.dev/reference/block-kit/blocks/header-block
HEADER_TEXT = 150
# docs.slack.dev/reference/block-kit/blocks/context-block (text objects: composition-objects/text-object)
CONTEXT_ELEMENTS = 10
TEXT_OBJECT = 3_000
# docs.slack.dev/reference/block-kit/blocks/actions-block
ACTIONS_ELEMENTS = 25
# docs.slack.dev/reference/block-kit/block-elements/button-element
BUTTON_TEXT = 75
BUTTON_VALUE = 2_000
BUTTON_URL = 3_000
ACTION_ID = 255
BUTTON_STYLES = frozenset({"primary", "danger"})
# docs.slack.dev/reference/block-kit/composition-objects/confirmation-dialog-object
CONFIRM_TITLE = 100
CONFIRM_TEXT = 300
CONFIRM_BUTTON = 30
# docs.slack.dev/reference/block-kit/blocks/image-block
IMAGE_URL = 3_000
IMAGE_ALT_TEXT = 2_000
IMAGE_TITLE = 2_000

# docs.slack.dev/reference/methods/chat.postMessage: longer text is truncated, not refused
POST_TEXT_TRUNCATED = 40_000
# docs.slack.dev/reference/methods/chat.update: msg_too_long
UPDATE_TEXT = 4_000
# docs.slack.dev/reference/methods/chat.postMessage: markdown_text
MARKDOWN_ARGUMENT = 12_000
# docs.slack.dev/reference/methods/chat.postMessage: metadata (docs.slack.dev/messaging/message-metadata)
METADATA_JSON = 16_000

# docs.slack.dev/apis/web-api/rate-limits: calls a minute, per method, app and workspace
TIER_2 = 20
TIER_3 = 50
TIER_4 = 100
# Each method's own page names its tier. "Special" ones: auth.test "hundreds of requests per minute";
# assistant.threads.setStatus 600 a minute; chat.postMessage one a second per channel with short bursts, and
# "several hundred messages per minute" per workspace.
METHOD_CALLS_PER_MINUTE = {
    "assistant.threads.setStatus": 600,
    "auth.test": 300,
    "chat.delete": TIER_3,
    "chat.postEphemeral": TIER_4,
    "chat.postMessage": 300,
    "chat.update": TIER_3,
    "conversations.history": TIER_3,
    "conversations.info": TIER_3,
    "conversations.list": TIER_2,
    "conversations.open": TIER_3,
    "conversations.replies": TIER_3,
    "reactions.add": TIER_3,
    "users.conversations": TIER_3,
    "users.info": TIER_4,
}
POSTS_PER_SECOND_PER_CHANNEL = 1.0
POST_BURST_PER_CHANNEL = 4
RATE_WINDOW_S = 60.0

# docs.slack.dev/apis/events-api: answer within 3 seconds; retried at once, after 1 minute and after 5 minutes
EVENT_TIMEOUT_S = 3.0
EVENT_RETRY_DELAYS_S = (0.0, 60.0, 300.0)
# docs.slack.dev/interactivity/handling-user-interaction: response_url
RESPONSE_URL_USES = 5
RESPONSE_URL_LIFETIME_S = 1_800.0
# docs.slack.dev/reference/methods/assistant.threads.setStatus: removed after two minutes without a message
STATUS_LIFETIME_S = 120.0
