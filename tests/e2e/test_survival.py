"""The service dies or is stopped, and another one comes: what people see, can click, and are answered then."""

import asyncio
import signal
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from bots.cards.strings.en import EN
from harness.stores.migrate import VERSION_TABLE
from harness.stores.sql import open_stores
from tests.e2e.bed import Bed, bed
from tests.e2e.test_approvals import private, question
from tests.e2e.test_slack_chat import markdown_of

SHORT_LEASE = {"LEASE_TTL_S": "1"}
REQUESTER = {"APPROVERS": "requester"}
LONGEST_RECOVERY_S = 20.0
BOTH_WAYS = pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["stopped", "killed"])


async def restarted(b: Bed, how: signal.Signals = signal.SIGKILL) -> None:
    await b.service.stop(how)
    await b.service.start()


def cards(b: Bed, root: str) -> list[dict[str, Any]]:
    """What the bot has put below `root` for everybody to see."""
    return [message for message in b.bot_messages(thread=root) if message["private_to"] is None]


async def card(b: Bed, state: str, root: str, nth: int = 0, seconds: float = 15) -> dict[str, Any]:
    """As `Bed.card`, where one person alone may have been told something in between."""

    def look() -> dict[str, Any] | None:
        found = cards(b, root)
        return found[nth] if len(found) > nth and state in found[nth]["text"].partition("\n")[0] else None

    return await b.until(look, f"card {nth} to show {state!r}", seconds, lambda: cards(b, root))


def shown(b: Bed, root: str) -> str:
    return markdown_of(cards(b, root))


async def notice(b: Bed, user: str, text: str, nth: int = 0) -> None:
    """Wait until this person alone was told this so many times."""
    await b.until(
        lambda: private(b).count((user, text)) > nth, f"{user} to be told {text!r}", instead=lambda: private(b)
    )


async def test_a_kill_in_mid_answer_keeps_all_that_was_seen_and_retry_answers_it_once(tmp_path: Path) -> None:
    async with bed(tmp_path, speed=5) as b:  # the lease is the default one
        b.expects_violations = True
        root = b.say("long")
        await b.until(lambda: len(shown(b, root)) >= 500, "500 characters")
        await b.service.stop(signal.SIGKILL)
        killed_at = time.monotonic()
        before = shown(b, root)
        [message] = cards(b, root)
        await b.service.start()
        left = LONGEST_RECOVERY_S - (time.monotonic() - killed_at)
        ended = await card(b, "Interrupted", root, seconds=left)
        assert ended["message"] == message["message"]
        assert len(cards(b, root)) == 1
        assert shown(b, root) == before
        assert [button["action"] for button in ended["buttons"]] == ["retry"]
        assert len(b.model.requests) == 1, "nothing is run again by itself"

        await b.slack.click("general", ended["message"], "retry", "bob")
        await notice(b, "bob", EN.nothing_to_retry)
        b.model.speed = 1000
        await asyncio.gather(*(b.slack.click("general", ended["message"], "retry", "alice") for _ in range(2)))
        again = await card(b, "Done", root, nth=1)
        assert again["message"] != ended["message"]
        assert [request.prompt for request in b.model.requests] == [b.model.requests[0].prompt] * 2
        parts = len(cards(b, root))  # of a long answer
        b.say("hello", thread=root)
        await card(b, "Done", root, nth=parts)
        await b.slack.click("general", ended["message"], "retry", "alice")
        await notice(b, "alice", EN.nothing_to_retry)
        assert len(b.model.requests) == 3


@BOTH_WAYS
async def test_a_question_asked_before_the_service_went_is_answered_after_it(
    tmp_path: Path, how: signal.Signals
) -> None:
    async with bed(tmp_path, settings={**SHORT_LEASE, **REQUESTER}) as b:
        b.expects_violations = how is signal.SIGKILL
        root = b.say("write notes.txt")
        asked = await question(b, root)
        card = await b.card("Waiting for approval", thread=root)
        await restarted(b, how)
        assert b.files() == {}
        await asyncio.gather(*(b.slack.click("general", asked["message"], "allow_once", "alice") for _ in range(3)))
        done = await b.card("Done", thread=root)
        assert done["message"] == card["message"]
        assert "Created 'notes.txt'" in done["text"]
        assert done["text"].count("write_file(") == 1
        decided = await question(b, root, "Allowed once by @alice")
        assert (decided["message"], decided["buttons"]) == (asked["message"], [])
        assert list(b.files()) == ["notes.txt"]
        assert len(b.model.requests) == 2
        await b.until(
            lambda: private(b) == [("alice", EN.approval_decided)] * 2, "the notices", instead=lambda: private(b)
        )


@BOTH_WAYS
async def test_a_question_that_expires_while_nobody_serves_is_denied_and_the_model_is_told(
    tmp_path: Path, how: signal.Signals
) -> None:
    async with bed(tmp_path, settings={**SHORT_LEASE, **REQUESTER, "APPROVAL_TIMEOUT_S": "1"}) as b:
        b.expects_violations = how is signal.SIGKILL
        root = b.say("write notes.txt")
        asked = await question(b, root)
        await b.service.stop(how)
        await asyncio.sleep(1)
        await b.service.start()
        card = await b.card("Done", thread=root)
        assert "Nobody gave permission in time" in card["text"]
        late = await question(b, root, "Expired, not run")
        assert (late["message"], late["buttons"]) == (asked["message"], [])
        assert b.files() == {}
        assert b"Nobody gave permission in time" in b.model.requests[-1].body


async def test_the_fourth_turn_knows_the_first_although_the_service_was_killed_between(tmp_path: Path) -> None:
    async with bed(tmp_path, speed=1000, settings=SHORT_LEASE) as b:
        root = b.say("The ferry leaves at noon.")
        await b.card("Done", thread=root)
        for nth, text in enumerate(("calc 1+1", "hello"), start=1):
            b.say(text, thread=root)
            await b.card("Done", thread=root, nth=nth)
        await restarted(b)
        b.say("What did I say first?", thread=root, mention=False)
        card = await b.card("Done", thread=root, nth=3)
        assert "The ferry leaves at noon." in card["text"]


async def test_a_database_of_newer_code_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    async with bed(tmp_path, start=False) as b:
        async with open_stores(None, b.data):
            pass
        with sqlite3.connect(b.data / "harness.db") as connection:
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
        connection.close()
        await b.service.start(ready=False)
        assert await b.service.ended() == 2
        [line] = b.service.log.strip().splitlines()
        assert "version '9999'" in line
        assert "upgrade the program" in line
        assert not (b.data / "valkey").exists(), "nothing was started that would have to be stopped"
