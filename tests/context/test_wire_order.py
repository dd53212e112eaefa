"""A conversation that was compacted, in the words of each protocol: the roles stand as its servers want them."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from harness.context.compactor import Compactor
from harness.history import prepare_history
from harness.messages import AssistantMessage, Message, SummaryMessage, Text, ToolCall, ToolResult, UserMessage
from harness.providers.anthropic_messages import anthropic_messages
from harness.providers.base import ModelRequest
from harness.providers.chat_messages import chat_messages
from harness.providers.profiles import PRESETS
from harness.providers.responses_input import responses_input
from tests.context.models import says

BARE = ModelRequest("", ())


def exchange(number: int) -> list[Message]:
    return [
        AssistantMessage((ToolCall(f"c{number}", "look", {}),)),
        ToolResult(f"c{number}", "look", "data " * 60),
    ]


def turn(number: int) -> list[Message]:
    return [UserMessage(f"question {number}"), *exchange(number), AssistantMessage((Text("answer"),))]


TURNS: list[Message] = [message for number in range(20) for message in turn(number)]
ONE_RUN: list[Message] = [UserMessage("question"), *(m for number in range(40) for m in exchange(number))]


def compacted(log: Sequence[Message]) -> ModelRequest:
    async def ask(_: ModelRequest) -> AssistantMessage:
        return says("notes")

    mark = asyncio.run(Compactor(2_000).compact([*log], BARE, ask, refused=True))
    assert isinstance(mark, SummaryMessage)
    assert mark.covers
    return ModelRequest("Be brief.", prepare_history([*log, mark]))


@pytest.mark.parametrize("log", [TURNS, [*TURNS, UserMessage("and now?")], ONE_RUN])
@pytest.mark.parametrize("preset", ["default", "mistral"])
def test_in_chat_completions_no_two_of_the_users_messages_meet(log: list[Message], preset: str) -> None:
    roles = [message["role"] for message in chat_messages(compacted(log), PRESETS[preset])]
    assert roles[:2] == ["system", "user"]
    pairs = set(pairwise(roles))
    assert ("user", "user") not in pairs
    if preset == "mistral":
        assert ("tool", "user") not in pairs


@pytest.mark.parametrize("log", [TURNS, [*TURNS, UserMessage("and now?")], ONE_RUN])
def test_anthropics_roles_alternate_from_the_user_on(log: list[Message]) -> None:
    wire = anthropic_messages(compacted(log), PRESETS["anthropic"])
    roles = [message["role"] for message in wire]
    assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
    uses = [block["id"] for message in wire for block in blocks(message) if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for message in wire for block in blocks(message) if block["type"] == "tool_result"]
    assert uses == results != []


@pytest.mark.parametrize("log", [TURNS, ONE_RUN])
def test_in_responses_each_call_has_its_output(log: list[Message]) -> None:
    items = responses_input(compacted(log), PRESETS["openai"])
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    assert calls == [item["call_id"] for item in items if item.get("type") == "function_call_output"] != []
    assert items[0]["role"] == "user"


def blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return message["content"]
