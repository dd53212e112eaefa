"""Permission in a chat, end to end: the run waits, somebody answers, and what was allowed runs once."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bots.cards.strings.en import EN
from bots.cards.strings.zh import ZH
from bots.playground.faults import Fault
from tests.e2e.bed import Bed, bed
from tests.e2e.standing import Standing

ALICE = "U0ALICE0001"
BY_ALICE: Mapping[str, str] = {"APPROVERS": f"slack:{ALICE}"}
BUTTONS = ["allow_once", "allow_session", "allow_always", "deny"]


async def question(
    b: Bed, root: str | None, words: str = "Permission needed", *, chat: str = "general", nth: int = 1
) -> dict[str, Any]:
    """Wait until the nth message of the bot below `root` is a question in this state, and return it."""
    return await b.card(words, thread=root, chat=chat, nth=nth)


def private(b: Bed, chat: str = "general") -> list[tuple[str, str]]:
    """Notices that one person alone sees: who, and what."""
    return [(m["private_to"], m["text"]) for m in b.slack.messages(chat) if m["private_to"]]


def code_of(asked: Mapping[str, Any]) -> str:
    found = re.search(r"!approve ([A-Z0-9]{6})", asked["text"])
    assert found is not None
    return found[1]


async def test_a_write_waits_for_the_approver_runs_once_and_goes_on_in_the_same_card(standing: Standing) -> None:
    async with standing.bed(settings=BY_ALICE) as b:
        root = b.say("write notes.txt", user="bob")
        asked = await question(b, root)
        card = await b.card("Waiting for approval", thread=root)
        assert [button["action"] for button in asked["buttons"]] == BUTTONS
        for part in ("write_file", "notes.txt", "written by the scripted model", "@bob"):
            assert part in asked["text"]
        assert b.files() == {}
        await b.slack.click("general", asked["message"], "allow_once", "alice")
        done = await b.card("Done", thread=root)
        decided = await question(b, root, "Allowed once by @alice")
        assert (done["message"], decided["message"]) == (card["message"], asked["message"])
        assert decided["buttons"] == []
        assert "notes.txt" in decided["text"]
        assert list(b.files()) == ["notes.txt"]
        assert len(b.bot_messages(thread=root)) == 2
        states = b.slack.visible_history("general", asked["message"])
        assert len(states) == 2, "posted, then edited once"


async def test_without_an_answer_in_time_the_question_closes_and_the_run_goes_on(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={**BY_ALICE, "APPROVAL_TIMEOUT_S": "0.6"}) as b:
        root = b.say("write notes.txt")
        asked = await question(b, root)
        card = await b.card("Done", thread=root)
        assert "Nobody gave permission in time" in card["text"]
        late = await question(b, root, "Expired, not run")
        assert late["buttons"] == []
        # A client that still shows the buttons.
        history = b.slack.history("general", asked["message"])
        assert len(history) == 2
        b.say(f"!approve {code_of(asked)}", thread=root, mention=False)
        await b.until(lambda: private(b), "the notice")
        assert private(b) == [("alice", EN.approval_expired)]
        assert b.files() == {}


async def test_foreign_clicks_are_answered_privately_and_of_many_good_ones_one_counts(standing: Standing) -> None:
    async with standing.bed(settings=BY_ALICE) as b:
        root = b.say("write notes.txt", user="bob")
        asked = await question(b, root)
        await b.slack.click("general", asked["message"], "allow_always", "bob")
        await b.slack.click("general", asked["message"], "deny", "carol")
        await b.until(lambda: len(private(b)) == 2, "the notices")
        assert {who for who, _ in private(b)} == {"bob", "carol"}
        assert {text for _, text in private(b)} == {EN.approval_not_yours}
        assert b.files() == {}
        assert (await question(b, root))["buttons"]
        click = b.slack.click
        await asyncio.gather(*(click("general", asked["message"], "allow_once", "alice") for _ in range(3)))
        card = await b.card("Done", thread=root)
        await b.until(lambda: len(private(b)) == 4, "the notices of those who were late")
        assert [text for who, text in private(b) if who == "alice"] == [EN.approval_decided] * 2
        assert card["text"].count("write_file(") == 1
        assert len(b.model.requests) == 2
        assert list(b.files()) == ["notes.txt"]


async def test_what_ends_the_run_ends_the_question(standing: Standing) -> None:
    async with standing.bed(settings=BY_ALICE) as b:
        for how in ("stop word", "stop button", "recall"):
            root = b.say("write notes.txt")
            await question(b, root)
            card = await b.card("Waiting for approval", thread=root)
            match how:
                case "stop word":
                    b.say("stop", thread=root, mention=False)
                case "stop button":
                    await b.slack.click("general", card["message"], "stop", "alice")
                case _:
                    b.slack.recall("general", root)
            await b.card("Canceled", thread=root)
            void = await question(b, root, "Canceled, not run")
            assert void["buttons"] == [], how
        assert b.files() == {}


async def test_with_the_reply_a_recall_takes_the_question_away(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={**BY_ALICE, "RECALL_DELETES_REPLY": "true"}) as b:
        root = b.say("write notes.txt")
        await question(b, root)
        b.slack.recall("general", root)
        await b.until(lambda: not b.bot_messages(thread=root), "both messages to go", instead=lambda: b.texts())


async def test_typed_answers_in_a_thread_and_in_a_direct_message(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={"APPROVERS": "requester"}) as b:
        root = b.say("write one.txt", user="bob")
        asked = await question(b, root)
        b.say(f"!deny {code_of(asked)} no such file, please", user="bob", thread=root, mention=False)
        denied = await question(b, root, "Denied by @bob")
        assert "Reason: no such file, please" in denied["text"]
        card = await b.card("Done", thread=root)
        assert "no such file, please" in card["text"]
        b.say("write two.txt", chat="dm-alice", mention=False)
        asked = await question(b, None, chat="dm-alice")
        b.say(f"/approve {code_of(asked).lower()}", chat="dm-alice", mention=False)
        await question(b, None, "Allowed once by @alice", chat="dm-alice")
        await b.card("Done", chat="dm-alice")
        assert list(b.files()) == ["two.txt"]


async def test_a_question_in_chinese(standing: Standing) -> None:
    async with standing.bed(settings=BY_ALICE) as b:
        root = b.say("请 write notes.txt 谢谢", user="bob")
        asked = await question(b, root, "需要批准")
        await b.card("等待批准", thread=root)
        assert [button["label"] for button in asked["buttons"]] == ["允许一次", "本会话允许", "始终允许", "拒绝"]
        await b.slack.click("general", asked["message"], "allow_once", "bob")
        await b.until(lambda: private(b), "the notice")
        assert private(b) == [("bob", ZH.approval_not_yours)]
        await b.slack.click("general", asked["message"], "allow_once", "alice")
        await question(b, root, "@alice 已允许一次")
        await b.card("完成", thread=root)


async def test_without_approvers_nothing_can_be_written_at_all(standing: Standing) -> None:
    async with standing.bed() as b:
        root = b.say("write notes.txt")
        card = await b.card("Done", thread=root)
        assert "write_file" in card["text"]
        assert "not on offer" in card["text"]
        assert len(b.bot_messages(thread=root)) == 1


async def test_a_permission_for_the_session_counts_although_slack_fails_to_show_it(standing: Standing) -> None:
    async with standing.bed(settings=BY_ALICE) as b:
        root = b.say("write notes.txt")
        await b.card("Waiting for approval", thread=root)
        asked = await question(b, root)
        for fault in (Fault("chat.update", 2, status=503), Fault("chat.update", 1, status=429, retry_after_s=1)):
            b.slack.add_fault(fault)
        await b.slack.click("general", asked["message"], "allow_session", "alice")
        await question(b, root, "Allowed for this session")
        await b.card("Done", thread=root)
        assert list(b.files()) == ["notes.txt"]
        b.say("write notes.txt", thread=root, mention=False)
        card = await b.card("Done", thread=root, nth=2)
        assert "Replaced" in card["text"]
        assert len(b.bot_messages(thread=root)) == 3, "no further question"


async def test_a_stop_of_the_service_waits_for_no_answer_and_leaves_the_question_open(tmp_path: Path) -> None:
    async with bed(tmp_path, settings={**BY_ALICE, "DRAIN_S": "60"}) as b:
        root = b.say("write notes.txt")
        await question(b, root)
        await b.card("Waiting for approval", thread=root)
        assert await asyncio.wait_for(b.service.stop(), 8) == 0
        asked = await question(b, root)
        assert [button["action"] for button in asked["buttons"]] == BUTTONS
