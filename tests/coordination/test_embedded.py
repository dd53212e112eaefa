"""The embedded server's life: one per data directory, outlives crashes, goes with the last clean stop."""

import asyncio
import os
import random
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import pytest

from bots.coordination import embedded
from bots.coordination.connection import connect
from bots.coordination.embedded import EmbeddedValkey
from harness.errors import ConfigError

SERVICE = """
import asyncio, sys
from bots.coordination.embedded import EmbeddedValkey
async def main():
    async with EmbeddedValkey(sys.argv[1]) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
asyncio.run(main())
"""


@asynccontextmanager
async def service(data_dir: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of its own that uses the server until its input ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVICE, str(data_dir), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
        await process.communicate()


async def url_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout
    while line := (await process.stdout.readline()).decode():
        if line.startswith("unix://"):
            return line.strip()
    raise AssertionError("the service did not start")


async def ask(url: str, *command: str | int) -> object:
    client = connect(url)
    try:
        return await client.execute_command(*command)
    finally:
        await client.aclose()


def servers(data_dir: Path) -> list[int]:
    """Every live server of this directory, seen from outside."""
    found: list[int] = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program, home = (folder / "exe").readlink(), (folder / "cwd").readlink()
            if program.name == "valkey-server" and home == (data_dir / "valkey").resolve():
                found.append(int(folder.name))
    return found


@pytest.fixture(autouse=True)
def none_left(tmp_path: Path) -> Iterator[None]:
    """A test that fails half-way must not leave its server to the machine."""
    yield
    for pid in [pid for home in (tmp_path, *tmp_path.rglob("with space")) for pid in servers(home)]:
        os.kill(pid, signal.SIGKILL)


linux = pytest.mark.skipif(sys.platform != "linux", reason="counts processes in /proc")


async def test_settings(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path) as url:
        wanted = {"port": "0", "appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}
        for name, value in wanted.items():
            assert await ask(url, "CONFIG", "GET", name) == {name.encode(): value.encode()}
        server = EmbeddedValkey(tmp_path)
        assert server.pid
        # Ctrl-C in our terminal must not reach it.
        assert os.getsid(server.pid) == server.pid
    assert server.pid is None


@linux
async def test_two_services_that_start_at_once_share_one_server(tmp_path: Path) -> None:
    async with service(tmp_path) as one, service(tmp_path) as two:
        assert await url_of(one) == await url_of(two)
        assert len(servers(tmp_path)) == 1
        # The first clean stop leaves it to the other, the last one ends it.
        await one.communicate(b"\n")
        assert one.returncode == 0
        assert len(servers(tmp_path)) == 1
        await two.communicate(b"\n")
        assert two.returncode == 0
    assert servers(tmp_path) == []


@linux
async def test_the_server_and_its_data_outlive_a_killed_service(tmp_path: Path) -> None:
    async with service(tmp_path) as process:
        url = await url_of(process)
        await ask(url, "SET", "kept", "yes")
        [pid] = servers(tmp_path)
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert servers(tmp_path) == [pid]
    server = EmbeddedValkey(tmp_path)
    assert await server.start() == url
    assert server.pid == pid
    assert await ask(url, "GET", "kept") == b"yes"
    await server.stop()
    await server.stop()
    assert servers(tmp_path) == []
    async with EmbeddedValkey(tmp_path) as url:
        assert await ask(url, "GET", "kept") == b"yes"


@linux
async def test_what_a_reboot_leaves_behind_is_no_server(tmp_path: Path) -> None:
    home = tmp_path / "valkey"
    home.mkdir()
    stranger = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        (home / "valkey.sock").write_text("stale")
        (home / "valkey.pid").write_text(str(stranger.pid))
        (home / "server.lock").touch()
        async with EmbeddedValkey(tmp_path) as url:
            assert await ask(url, "PING") is True
        assert servers(tmp_path) == []
        assert stranger.returncode is None
    finally:
        stranger.kill()
        await stranger.wait()


@linux
async def test_a_killed_server_is_replaced(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    url = await server.start()
    await ask(url, "SET", "kept", "yes")
    assert server.pid
    os.kill(server.pid, signal.SIGKILL)
    async with EmbeddedValkey(tmp_path) as again:
        assert again == url
        assert await ask(url, "GET", "kept") == b"yes"
        assert len(servers(tmp_path)) == 1
    await server.stop()
    assert servers(tmp_path) == []


@linux
async def test_a_server_whose_socket_was_removed_is_replaced_never_doubled(tmp_path: Path) -> None:
    server = EmbeddedValkey(tmp_path)
    url = await server.start()
    await ask(url, "SET", "kept", "yes")
    old = server.pid
    (tmp_path / "valkey" / "valkey.sock").unlink()
    async with EmbeddedValkey(tmp_path, start_timeout=1.0):
        assert await ask(url, "GET", "kept") == b"yes"
        assert servers(tmp_path) == [server.pid]
        assert server.pid != old
    await server.stop()
    assert servers(tmp_path) == []


@linux
async def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    data_dir = tmp_path / ("long" * 30) / "with space"
    async with EmbeddedValkey(data_dir) as url, EmbeddedValkey(data_dir) as same:
        assert url == same
        assert len(servers(data_dir)) == 1
        path = unquote(url.removeprefix("unix://"))
        folder = os.path.dirname(path)
        assert stat.S_ISSOCK(os.stat(path).st_mode)
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert os.path.dirname(folder) == tempfile.gettempdir()
    with pytest.raises(FileNotFoundError):
        os.stat(folder)


async def test_a_foreign_folder_in_the_way_of_the_short_socket_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data_dir = tmp_path / ("long" * 30)
    server = EmbeddedValkey(data_dir)
    server._socket_path().parent.chmod(0o777)
    with pytest.raises(ConfigError, match="somebody else"):
        await server.start()


@linux
async def test_a_failed_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "valkey" / "appendonlydir"
    broken.mkdir(parents=True)
    (broken / "appendonly.aof.manifest").write_text("nonsense")
    with pytest.raises(ConfigError, match=r"(?s)ended at once.*REDIS_URL"):
        await EmbeddedValkey(tmp_path).start()
    assert servers(tmp_path) == []
    (broken / "appendonly.aof.manifest").unlink()
    async with EmbeddedValkey(tmp_path):
        pass


@linux
async def test_a_start_that_is_canceled_leaves_nothing(tmp_path: Path) -> None:
    for delay in (0.0, 0.005, 0.02, 0.05):
        server = EmbeddedValkey(tmp_path)
        start = asyncio.create_task(server.start())
        await asyncio.sleep(delay)
        start.cancel()
        await asyncio.wait([start])
        if not start.cancelled():
            await server.stop()
        assert servers(tmp_path) == []
    async with EmbeddedValkey(tmp_path):
        pass


async def test_without_a_wheel_it_asks_for_redis_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"REDIS_URL=redis://"):
        await EmbeddedValkey(tmp_path).start()


async def test_a_data_dir_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="BOTS_DATA_DIR"):
        await EmbeddedValkey(tmp_path / "file").start()


@linux
async def test_services_that_come_and_go_never_meet_two_servers_or_none(tmp_path: Path) -> None:
    rng = random.Random(7)

    async def come_and_go() -> None:
        for _ in range(5):
            async with EmbeddedValkey(tmp_path) as url:
                assert await ask(url, "PING") is True
                assert len(servers(tmp_path)) == 1
                await asyncio.sleep(rng.random() * 0.03)
            await asyncio.sleep(rng.random() * 0.03)

    async with asyncio.TaskGroup() as services:
        for _ in range(4):
            services.create_task(come_and_go())
    assert servers(tmp_path) == []
