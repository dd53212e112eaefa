"""Writes turns for ever and says which are durable: to be killed. `python -m tests.stores.crash_worker URL`."""

import asyncio
import sys
from pathlib import Path

from harness.messages import AssistantMessage, ToolCall, ToolResult, UserMessage
from harness.stores.base import AppendMessages
from harness.stores.records import CallRecord
from harness.stores.sql import Stores, open_stores

WRITERS = 20


async def write(stores: Stores, writer: int) -> None:
    session = await stores.sessions.load(f"s{writer}")
    number = 0
    while True:
        call = ToolCall(f"c{number}", "shell", {"number": number})
        turn = (UserMessage(str(number)), AssistantMessage((call,)), ToolResult(call.id, "shell", str(number)))
        append = AppendMessages(session, turn, fence=1)
        await stores.commit(append, CallRecord(call, f"task-{writer}", session.key, True, float(number)))
        session = append.after
        sys.stdout.write(f"{writer} {number}\n")
        sys.stdout.flush()
        number += 1


async def main(url: str) -> None:
    async with open_stores(url, Path()) as stores:
        await asyncio.gather(*(write(stores, writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
