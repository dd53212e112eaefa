"""What every store of conversations, permissions and waiting runs must do, as classes of pytest tests.

Inherit them and give each its fixture:

    class TestMemory(SessionSuite, GrantSuite, ParkingSuite):
        @pytest.fixture
        def sessions(self) -> SessionStore:
            return MemorySessionStore()
        ...

One test uses one empty store. The stores of tasks, events, calls and cards have theirs in
`record_suite`, and what holds across all of them is in `whole_suite`.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from harness.admission import Origin, RunInput
from harness.approval import Approval, Grant
from harness.errors import StaleFence, VersionConflict
from harness.messages import (
    AssistantMessage,
    Message,
    Reasoning,
    SummaryMessage,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    UserMessage,
)
from harness.stores.base import GrantStore, ParkedRun, ParkingStore, Session, SessionStore

MANY = 20
NOW = 1_800_000_000.0

_Error = TypeVar("_Error", bound=BaseException)


async def refused(error: type[_Error], work: Awaitable[Any]) -> _Error:
    """Require that the work raises this error."""
    try:
        await work
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__} was raised")


def every_kind_of_message() -> tuple[Message, ...]:
    """One turn with all that a message can hold, the awkward values included."""
    call = ToolCall(
        "call_1",
        "write_file",
        {"path": "a%_'\"\\\u0000\u2028.txt", "size": 10**40, "ratio": 0.1, "deep": [{"a": [None, True, -0.0]}]},
        raw_arguments='{"path": "…"}',
        provider_id="functions.write_file:0",
        provider_data={"thought_signature": "c2ln"},
    )
    parts = (Reasoning("hm", "reasoning", ({"type": "text"},)), Text("Sure. 👩‍👩‍👧"), Text("No.", refusal=True), call)
    broken = ToolCall("call_2", "shell", None, raw_arguments='{"comm')
    return (
        SummaryMessage("before this"),
        UserMessage("do it\n\n\tnow", "Ann"),
        AssistantMessage((*parts, broken), "complete", "tool_calls", Usage(3, 4, estimated=True)),
        ToolResult("call_1", "write_file", "zero \u0000 character"),
        ToolResult("call_2", "shell", "malformed", is_error=True),
        AssistantMessage((), "interrupted"),
    )


def a_run(name: str = "a", session_key: str = "test:T1:C1/thread", requester: str = "U1") -> RunInput:
    """Make a request whose ids all follow from one name."""
    origin = Origin(f"m-{name}", f"d-{name}", requester, "Ann", {"channel": "C1", "ts": name})
    return RunInput(f"task-{name}", session_key, f"question {name}", origin, queued_at_ms=7)


def an_approval(name: str, run: RunInput, *, expires_at: float = NOW + 600) -> Approval:
    """Make a pending question of a run."""
    return Approval(
        id=f"approval-{name}",
        code=f"CODE{name.upper()}",
        tool="shell",
        arguments={"command": "ls", "limit": 2**70},
        expires_at=expires_at,
        task_id=run.task_id,
        session_key=run.session_key,
        call_id=f"call-{name}",
        requester=run.origin.requester,
        digest=f"digest-{name}",
    )


def a_parked_run(name: str = "a", *, questions: Sequence[str] = ("q",), expires_at: float = NOW + 600) -> ParkedRun:
    """Make a run that waits for an answer to each of these questions."""
    run = a_run(name)
    calls = tuple(ToolCall(f"call-{question}", "shell", {"command": "ls"}) for question in questions)
    return ParkedRun(
        run=run,
        message=AssistantMessage((Text("May I?"), *calls), usage=Usage(1, 2)),
        approvals=tuple(an_approval(question, run, expires_at=expires_at) for question in questions),
        turns=2,
        tool_calls=3,
        steps=4,
        usage=Usage(5, 6),
        answered=("first", "second"),
        elapsed_s=1.25,
        denials=1,
        refused=(("call-x", "This call is not permitted here."),),
    )


class SessionSuite:
    """The contract of `SessionStore`. Fixture: `sessions`."""

    async def test_an_unknown_conversation_is_empty(self, sessions: SessionStore) -> None:
        """And looking at it makes none."""
        assert await sessions.load("new") == Session("new")

    async def test_what_was_appended_is_loaded_as_it_was(self, sessions: SessionStore) -> None:
        """Every kind of message, in order, over several appends."""
        turn = every_kind_of_message()
        first = await sessions.append(await sessions.load("s"), turn[:2], fence=3)
        second = await sessions.append(first, turn[2:], fence=3)
        loaded = await sessions.load("s")
        assert loaded == second
        assert loaded.messages == turn
        assert (loaded.version, loaded.fence) == (2, 3)
        assert await sessions.load("S") == Session("S"), "case counts in a key"

    async def test_a_loaded_session_never_changes(self, sessions: SessionStore) -> None:
        """Its reader may be at work on it."""
        before = await sessions.append(await sessions.load("s"), [UserMessage("one")])
        await sessions.append(before, [UserMessage("two")])
        assert before.messages == (UserMessage("one"),)

    async def test_who_comes_second_gets_a_conflict_and_writes_nothing(self, sessions: SessionStore) -> None:
        """It has to load and decide again."""
        empty = await sessions.load("s")
        first = await sessions.append(empty, [UserMessage("first")])
        await refused(VersionConflict, sessions.append(empty, [UserMessage("second"), UserMessage("third")]))
        await refused(VersionConflict, sessions.append(replace(first, version=9), [UserMessage("from nowhere")]))
        assert await sessions.load("s") == first

    async def test_writers_at_the_same_moment_lose_nothing(self, sessions: SessionStore) -> None:
        """Each goes on until its message is in, and every message is in once."""

        async def write(number: int) -> None:
            while True:
                try:
                    await sessions.append(await sessions.load("s"), [UserMessage(str(number))])
                except VersionConflict:
                    continue
                return

        await asyncio.gather(*(write(number) for number in range(MANY)))
        loaded = await sessions.load("s")
        texts = [message.text for message in loaded.messages if isinstance(message, UserMessage)]
        assert sorted(texts, key=int) == [str(number) for number in range(MANY)]
        assert loaded.version == MANY

    async def test_one_conflict_among_many_writers_is_its_own(self, sessions: SessionStore) -> None:
        """Appends that are done together succeed and fail apart."""
        stale = await sessions.load("stale")
        await sessions.append(stale, [UserMessage("faster")])

        async def write(number: int) -> str:
            session = stale if number == MANY // 2 else await sessions.load(f"s{number}")
            try:
                await sessions.append(session, [UserMessage(str(number))])
            except VersionConflict:
                return "conflict"
            return "written"

        answers = await asyncio.gather(*(write(number) for number in range(MANY)))
        assert answers == ["conflict" if number == MANY // 2 else "written" for number in range(MANY)]
        for number in range(MANY):
            expected = () if number == MANY // 2 else (UserMessage(str(number)),)
            assert (await sessions.load(f"s{number}")).messages == expected

    async def test_an_owner_from_before_is_refused(self, sessions: SessionStore) -> None:
        """Also when it has seen the newest version: another owner has taken over."""
        old = await sessions.append(await sessions.load("s"), [UserMessage("old owner")], fence=5)
        new = await sessions.append(old, [UserMessage("new owner")], fence=6)
        await refused(StaleFence, sessions.append(new, [UserMessage("zombie")], fence=5))
        await refused(StaleFence, sessions.append(old, [UserMessage("zombie")], fence=5))
        assert await sessions.load("s") == new
        again = await sessions.append(new, [UserMessage("still mine")], fence=6)
        without = await sessions.append(again, [UserMessage("a command in the chat")])
        assert without.fence == 6, "a writer without a lease keeps the owner's fence"

    async def test_a_cleared_conversation_is_empty_and_stays_so(self, sessions: SessionStore) -> None:
        """Who still holds the old one cannot bring it back, and an old owner is still old."""
        old = await sessions.append(await sessions.load("s"), [UserMessage("secret")], fence=5)
        await sessions.clear("s")
        cleared = await sessions.load("s")
        assert cleared.messages == ()
        await refused(VersionConflict, sessions.append(old, [UserMessage("back")], fence=5))
        await refused(StaleFence, sessions.append(cleared, [UserMessage("zombie")], fence=4))
        new = await sessions.append(cleared, [UserMessage("new")], fence=5)
        assert (await sessions.load("s")) == new
        assert new.messages == (UserMessage("new"),)
        await sessions.clear("unknown")
        assert await sessions.load("unknown") == Session("unknown")

    async def test_an_append_whose_caller_goes_away_is_whole_or_absent(self, sessions: SessionStore) -> None:
        """Half a turn would make every later request to the model invalid."""
        turn = every_kind_of_message()
        for steps in range(4):
            session = await sessions.load(f"s{steps}")
            writing = asyncio.ensure_future(sessions.append(session, turn))  # noqa: TID251 - canceled below
            for _ in range(steps):
                await asyncio.sleep(0)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            # A later write is behind the canceled one: by then it is known what became of that.
            await sessions.append(await sessions.load("other"), [UserMessage("later")])
            assert (await sessions.load(f"s{steps}")).messages in ((), turn)


class GrantSuite:
    """The contract of `GrantStore`. Fixture: `grants`."""

    grant = Grant("g1", "shell", "d1", "C1", "U1", "", "U9", NOW, NOW + 60, {"command": "ls", "limit": 2**70})

    async def test_a_grant_covers_its_call_person_and_chat_alone(self, grants: GrantStore) -> None:
        """In every session of the chat."""
        await grants.add(self.grant)

        async def find(digest: str = "d1", chat: str = "C1", user: str = "U1", now: float = NOW) -> Grant | None:
            return await grants.find(digest, chat=chat, user=user, session_key="any", now=now)

        assert await find() == self.grant
        assert await find(digest="d2") is None
        assert await find(chat="C2") is None
        assert await find(user="U2") is None
        assert await find(now=NOW + 60) is None, "it has expired"

    async def test_a_grant_for_one_session_is_not_found_in_another(self, grants: GrantStore) -> None:
        """What is allowed for this session is allowed for this one."""
        await grants.add(replace(self.grant, session_key="C1/a"))
        assert await grants.find("d1", chat="C1", user="U1", session_key="C1/a", now=NOW) is not None
        assert await grants.find("d1", chat="C1", user="U1", session_key="C1/b", now=NOW) is None

    async def test_the_grants_in_force_are_listed_oldest_first(self, grants: GrantStore) -> None:
        """Of a chat, of a person, or of all."""
        other = replace(self.grant, id="g2", chat="C2", user="U2", created_at=NOW + 1)
        expired = replace(self.grant, id="g3", expires_at=NOW - 1)
        for grant in (self.grant, other, expired):
            await grants.add(grant)
        assert await grants.list(now=NOW) == [self.grant, other]
        assert await grants.list(now=NOW, chat="C2") == [other]
        assert await grants.list(now=NOW, user="U1") == [self.grant]
        assert await grants.list(now=NOW, chat="C2", user="U1") == []

    async def test_a_grant_with_the_same_id_is_replaced(self, grants: GrantStore) -> None:
        """And only that one."""
        await grants.add(self.grant)
        longer = replace(self.grant, expires_at=NOW + 600, digest="d2")
        await grants.add(longer)
        assert await grants.list(now=NOW) == [longer]
        assert await grants.find("d1", chat="C1", user="U1", session_key="s", now=NOW) is None

    async def test_a_grant_is_taken_back_once(self, grants: GrantStore) -> None:
        """Of many that revoke it at the same moment one is told so."""
        await grants.add(self.grant)
        answers = await asyncio.gather(*(grants.revoke("g1") for _ in range(MANY)))
        assert sorted(answers) == [False] * (MANY - 1) + [True]
        assert await grants.list(now=NOW) == []


class ParkingSuite:
    """The contract of `ParkingStore`. Fixture: `parking`."""

    async def test_a_parked_run_comes_back_as_it_was(self, parking: ParkingStore) -> None:
        """Everything that is needed to go on elsewhere."""
        run = a_parked_run(questions=("q", "r"))
        await parking.park(run)
        assert await parking.parked("task-a") == run
        assert await parking.parked("task-b") is None
        assert not run.is_decided

    async def test_a_question_is_found_by_id_and_by_code(self, parking: ParkingStore) -> None:
        """A person may type the code in small letters."""
        run = a_parked_run()
        await parking.park(run)
        assert await parking.find("approval-q") == run.approvals[0]
        assert await parking.find("codeq") == run.approvals[0]
        assert await parking.find("unknown") is None

    async def test_of_many_deciders_one_wins(self, parking: ParkingStore) -> None:
        """The others are told that they were late, and the winner's word stands."""
        await parking.park(a_parked_run())
        answers = await asyncio.gather(
            *(parking.decide("approval-q", "once" if n % 2 else "deny", by=f"U{n}", now=NOW) for n in range(MANY))
        )
        winners = [answer for answer in answers if answer is not None]
        assert len(winners) == 1
        assert await parking.find("approval-q") == winners[0]
        assert winners[0].status == ("denied" if winners[0].decision == "deny" else "allowed")
        assert answers[int(winners[0].decided_by[1:])] == winners[0]

    async def test_a_question_cannot_be_answered_late_or_if_it_was_never_asked(self, parking: ParkingStore) -> None:
        """The row alone decides, not the button."""
        await parking.park(a_parked_run(expires_at=NOW))
        assert await parking.decide("approval-q", "once", by="U1", now=NOW) is None
        assert await parking.decide("approval-x", "once", by="U1", now=NOW) is None
        found = await parking.find("approval-q")
        assert found is not None
        assert found.status == "pending"

    async def test_what_nobody_answered_is_denied_once(self, parking: ParkingStore) -> None:
        """And what still has time, or has its answer, is left alone."""
        await parking.park(a_parked_run("a", questions=("q", "r"), expires_at=NOW))
        await parking.park(a_parked_run("b", questions=("s",), expires_at=NOW + 1))
        await parking.decide("approval-r", "session", by="U1", now=NOW - 1)
        expired = [row for rows in await asyncio.gather(*(parking.expire(now=NOW) for _ in range(3))) for row in rows]
        assert [(row.id, row.status, row.decision) for row in expired] == [("approval-q", "expired", "deny")]
        parked = await parking.parked("task-a")
        assert parked is not None
        assert [approval.status for approval in parked.approvals] == ["expired", "allowed"]
        assert parked.is_decided

    async def test_of_many_that_take_a_run_out_one_gets_it(self, parking: ParkingStore) -> None:
        """With the answers as they stand; what was not answered can be answered no more."""
        await parking.park(a_parked_run(questions=("q", "r")))
        await parking.decide("approval-q", "once", by="U1", now=NOW)
        taken = [
            run for run in await asyncio.gather(*(parking.unpark("task-a") for _ in range(MANY))) if run is not None
        ]
        assert len(taken) == 1
        assert [approval.status for approval in taken[0].approvals] == ["allowed", "pending"]
        assert await parking.parked("task-a") is None
        assert await parking.decide("approval-r", "once", by="U1", now=NOW) is None
        void = await parking.find("approval-r")
        assert void is not None
        assert void.status == "void"

    async def test_a_run_with_all_of_its_answers_is_ready(self, parking: ParkingStore) -> None:
        """Whoever looks after a crash can go on with it; taken out it is ready no more."""
        await parking.park(a_parked_run("a", questions=("q", "r")))
        await parking.park(a_parked_run("b", questions=("s",), expires_at=NOW))
        await parking.decide("approval-q", "once", by="U1", now=NOW)
        assert list(await parking.ready()) == []
        await parking.expire(now=NOW)
        assert list(await parking.ready()) == ["task-b"]
        await parking.decide("approval-r", "deny", by="U1", now=NOW)
        assert sorted(await parking.ready()) == ["task-a", "task-b"]
        await parking.unpark("task-a")
        assert list(await parking.ready()) == ["task-b"]

    async def test_a_run_may_ask_again(self, parking: ParkingStore) -> None:
        """The second question stands by itself."""
        await parking.park(a_parked_run(questions=("q",)))
        await parking.decide("approval-q", "once", by="U1", now=NOW)
        await parking.unpark("task-a")
        second = a_parked_run(questions=("r",))
        await parking.park(second)
        assert await parking.parked("task-a") == second
        assert await parking.unpark("task-a") == second
