"""English."""

from bots.cards.approval import QuestionState
from bots.cards.strings import Strings
from bots.cards.view import Phase

EN = Strings(
    phase={
        Phase.THINKING: "Thinking",
        Phase.RUNNING: "Running",
        Phase.WAITING: "Waiting for approval",
        Phase.QUEUED: "Queued",
        Phase.DONE: "Done",
        Phase.CANCELED: "Canceled",
        Phase.FAILED: "Failed",
        Phase.TIMED_OUT: "Timed out",
        Phase.INTERRUPTED: "Interrupted",
    },
    queued="Queued ({position})",
    outcome_unknown="outcome unknown",
    tool_seconds="{seconds} s",
    footer_tokens="{count} tokens",
    footer_seconds="{seconds} s",
    retrying="The model did not answer; asking again (attempt {attempt}).",
    continued="continued",
    partial="The answer above is incomplete.",
    sentence_gap=" ",
    interrupted=(
        "I was interrupted while I worked on this. Nothing was run again; Retry asks for all of it once more."
    ),
    interrupted_early="I was interrupted before I could begin. Press Retry.",
    expired="This message waited more than 30 minutes for its turn, so I did not run it. Please send it again.",
    errors={
        "auth": "The model refused the credentials. An administrator needs to check the API key.",
        "rate_limit": "The model is over its rate limit right now. Try again in a minute.",
        "overloaded": "The model is overloaded right now. Try again in a minute.",
        "bad_request": "The model did not accept the request. An administrator finds the reason in the log.",
        "context_length": "This conversation has become too long for the model. Start a new one with `!new`.",
        "content_filter": "The model's provider refused to answer this.",
        "connection": "The connection to the model broke.",
        "timeout": "The model stopped answering in time.",
        "truncated": "The model's answer broke off.",
        "protocol": "The model sent an answer that cannot be read.",
        "empty": "The model sent no answer.",
        "tool_markup": "The model wrote a tool call as text instead of making it.",
        "tool": "A tool failed.",
        "budget": "The limit for this task is used up.",
        "max_turns": "The task took too many steps and was stopped.",
        "config": "The bot is not set up completely. An administrator finds the reason in the log.",
        "internal": "Something went wrong inside the bot. An administrator finds the reason in the log.",
    },
    stop="Stop",
    retry="Retry",
    help=(
        "Mention me with a question and I answer in the thread; in a direct message no mention is needed. "
        "To stop me, delete your message, press Stop, or write `stop`. `!retry` asks once more, `!new` starts "
        "a new conversation, `!status` shows what runs here, `!help` shows this. Questions for permission have "
        "buttons, and `!approve CODE` and `!deny CODE reason`."
    ),
    unsupported="I cannot read this kind of message yet. Please write it as text.",
    too_old="This message reached me more than 30 minutes late, so I did not run it. Please send it again.",
    too_long="This message is too long for me. Please send it in parts.",
    queue_full="Too many messages are waiting here already. Please send this one again later.",
    busy="I am still working on the message before. Please send this one again when it is done.",
    closed="I am being restarted. Please send this again in a minute.",
    not_yours="Only the person who asked, or an administrator, can stop this.",
    nothing_to_stop="Nothing of yours is running here.",
    nothing_to_retry="Only your own last request can be tried again, and only until the next one here.",
    queue_cleared="Your waiting messages here were removed: {count}.",
    conversation_cleared="A new conversation starts here. I have forgotten what was said before.",
    status_idle="Nothing is running here.",
    status_running="One task is running here, {waiting} waiting.",
    unavailable="I am temporarily unavailable. Please try again in a minute.",
    no_access="You are not on the list of people I may answer. Please ask an administrator.",
    allow_once="Allow once",
    allow_session="Allow for this session",
    allow_always="Always allow",
    deny="Deny",
    question={
        QuestionState.PENDING: "Permission needed",
        QuestionState.ONCE: "Allowed once by {person}",
        QuestionState.SESSION: "Allowed for this session by {person}",
        QuestionState.ALWAYS: "Always allowed by {person}",
        QuestionState.DENIED: "Denied by {person}",
        QuestionState.EXPIRED: "Expired, not run",
        QuestionState.VOID: "Canceled, not run",
    },
    question_asked="Asked for by {person}.",
    question_until="Waits until {time}; without an answer it is not run.",
    question_codes="Without buttons: `!approve {code}` or `!deny {code} reason`.",
    question_no_arguments="(no arguments)",
    question_reason="Reason: {reason}",
    question_too_long=(
        "I wanted to run `{tool}`, but what it was to be given is too long to be shown here whole, so nobody could "
        "judge it. It was not run."
    ),
    approval_unknown="There is no such question for permission (any more).",
    approval_elsewhere="This question was asked somewhere else. It can only be answered there.",
    approval_not_yours="You may not decide this: it takes one of the approvers or an administrator.",
    approval_decided="Somebody was faster: this has been decided already.",
    approval_expired="Too late: the question has expired, and nothing was run.",
    approval_void="The task was stopped, so this was not run and needs no answer any more.",
)
