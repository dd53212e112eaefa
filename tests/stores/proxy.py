"""A socket before PostgreSQL that can lose the answer to a commit, or the commit itself."""

import asyncio
from pathlib import Path
from typing import Literal, Self

NAME = ".s.PGSQL.5432"
Loss = Literal["nothing", "request", "reply"]


class LossyProxy:
    """`async with LossyProxy(server_folder, own_folder)`. Each loss that is ordered happens once."""

    def __init__(self, server_folder: str, folder: Path) -> None:
        self._server_folder = Path(server_folder)
        self.folder = folder
        self.next_loss: Loss = "nothing"
        self.lost = 0
        self.is_cut = False
        self.cut_after_loss = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._serve, self.folder / NAME)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connection(reader, writer))
        self._tasks.add(task)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.close()
            return
        server_reader, server_writer = await asyncio.open_unix_connection(self._server_folder / NAME)
        answers = asyncio.create_task(_copy(server_reader, writer))
        try:
            while data := await reader.read(65536):
                loss: Loss = "nothing"
                if b"COMMIT" in data:
                    loss, self.next_loss = self.next_loss, "nothing"
                if loss == "reply":
                    answers.cancel()
                    await asyncio.gather(answers, return_exceptions=True)
                    server_writer.write(data)
                    assert b"COMMIT" in await server_reader.read(65536)
                if loss != "nothing":
                    self.lost += 1
                    self.is_cut = self.cut_after_loss
                    return
                server_writer.write(data)
        finally:
            answers.cancel()
            await asyncio.gather(answers, return_exceptions=True)
            for end in (writer, server_writer):
                end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
