"""Attacks on calculator, fetch and files beyond those in tests/tools: mixtures, races, and tools used on each other."""

import asyncio
import contextlib
import gzip
import json
import os
import socket
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.events import ToolEnded
from harness.gate import ApprovalGate
from harness.providers.script import Call, Say
from harness.stores.memory import MemoryGrantStore
from harness.tools.base import by_name
from harness.tools.builtin.calculator import calculator
from harness.tools.builtin.fetch import fetch_tool
from harness.tools.builtin.files import file_tools
from harness.tools.builtin.shell import shell_tool
from harness.tools.download import Downloader
from harness.tools.sandbox import Sandbox
from harness.tools.workspace import Workspace
from tests.features.rig import bed
from tests.tools.test_files import exchange
from tests.tools.use import use

# --- calculator ---

PIECES = st.sampled_from(
    [
        *("1", "0", "9" * 40, "1e999", "1e-999", "0.1", "10**900", "pi", "e", "x", "1_0", "0x1f", "1j", "'a'", "None"),
        *(
            "+",
            "-",
            "*",
            "/",
            "//",
            "%",
            "**",
            "(",
            ")",
            ",",
            " ",
            "\n",
            ".",
            ":=",
            "=",
            "[",
            "]",
            "{",
            "}",
            "if",
            "for",
        ),
        *("sqrt(", "log(", "exp(", "round(", "max(", "floor(", "sin(", "abs(", "eval(", "lambda:", "__class__", "\x00"),
    ]
)


def computed(expression: str) -> tuple[str, bool]:
    """What the model is told, and whether it is a refusal."""
    try:
        return calculator.function(expression), False
    except ToolError as refused:
        return str(refused), True


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.lists(PIECES, min_size=1, max_size=12).map("".join), st.text(max_size=30)))
@example("1e999" + "**1e999" * 9)
@example("round(" * 60 + "10**900" + ",-28)" * 60)
@example("log(" * 90 + "10**900" + ")" * 90)
@example("(10**900)%(10**-900)")
@example("-" * 250 + "(10**900)**-1")
@example("1.0000000000000000000000000001**(10**30)")
@example("max(" + "10**900," * 40 + "1)")
def test_whatever_is_computed_ends_in_a_short_number_or_a_sentence(expression: str) -> None:
    result, refused = computed(expression)
    if refused:
        assert len(result) < 300
    else:
        assert len(result) <= 1_003, "a thousand digits, a sign and a point"
        float(result)


# --- fetch ---


@asynccontextmanager
async def serving(answer: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> AsyncIterator[tuple[str, int]]:
    """A server below HTTP: `answer` writes whatever it likes after the request. Gives its address."""
    open_now: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_now.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await answer(writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            open_now.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[:2]
        async with asyncio.timeout(5):
            while open_now:  # whoever gives up has hung up as well
                await asyncio.sleep(0.01)


async def slow_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
    for number in range(10_000):
        writer.write(f"X-{number}: y\r\n".encode())
        await writer.drain()
        await asyncio.sleep(0.01)


async def endless_promises(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(0.005)


async def much_gzip_of_nothing(writer: asyncio.StreamWriter) -> None:
    """Compressed blocks without content: they may come for ever, and nothing ever comes out."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n")
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    writer.write(packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH))
    while True:
        writer.write(packer.flush(zlib.Z_FULL_FLUSH) or b"\x00\x00\x00\xff\xff" * 1_000)
        await writer.drain()
        await asyncio.sleep(0.001)


async def less_than_it_says(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nhalf")
    await writer.drain()


async def two_lengths(writer: asyncio.StreamWriter) -> None:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 4\r\nContent-Length: 9\r\n\r\nhalfAhalfB"
    )
    await writer.drain()


async def not_http(writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n" * 100)
    await writer.drain()


async def bomb_behind_an_end(writer: asyncio.StreamWriter) -> None:
    """A second gzip member, far larger than the first."""
    body = gzip.compress(b"small") + gzip.compress(b"\0" * 2**24)
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()


# What a server may do below HTTP, and what the model is told.
RUDE: dict[str, tuple[Callable[[asyncio.StreamWriter], Awaitable[None]], str]] = {
    "headers one by one": (slow_headers, r"within 0\.5 s|not valid HTTP"),
    "promises for ever": (endless_promises, r"within 0\.5 s|not valid HTTP"),
    "gzip of nothing for ever": (much_gzip_of_nothing, r"within 0\.5 s|compression is broken"),
    "less than it says": (less_than_it_says, "the connection broke"),
    "two lengths": (two_lengths, "not valid HTTP|the connection broke"),
    "no HTTP at all": (not_http, "not valid HTTP|the connection broke"),
}


@pytest.mark.parametrize("manner", RUDE)
async def test_a_rude_server_costs_its_time_limit_at_most(manner: str) -> None:
    answer, told = RUDE[manner]
    async with serving(answer) as place:
        tool = fetch_tool(Downloader(also_allowed=frozenset({place}), timeout_s=0.5))
        async with asyncio.timeout(5):
            with pytest.raises(ToolError, match=told):
                await use(tool, url=f"http://{place[0]}:{place[1]}/")


async def test_what_follows_the_end_of_the_compressed_data_is_not_unpacked() -> None:
    async with serving(bomb_behind_an_end) as place:
        tool = fetch_tool(Downloader(also_allowed=frozenset({place}), timeout_s=5))
        assert (await use(tool, url=f"http://{place[0]}:{place[1]}/")).endswith("\n\nsmall")


async def test_a_name_server_that_does_not_answer_costs_the_time_limit_at_most() -> None:
    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with asyncio.timeout(5):
        with pytest.raises(ToolError, match=r"within 0\.1 s"):
            await use(fetch_tool(Downloader(resolve=never, timeout_s=0.1)), url="http://page.example/")


INSIDE = ["169.254.169.254", "10.0.0.5", "127.0.0.1", "::1", "fd00:ec2::254", "fe80::1%eth0", "64:ff9b::a9fe:a9fe"]


@pytest.mark.parametrize("address", INSIDE)
@pytest.mark.parametrize("host", ["metadata.example", "LOCALHOST.example.", "xn--bcher-kva.example", "a_b.example"])
async def test_no_name_leads_inside(address: str, host: str) -> None:
    asked: list[str] = []

    async def resolve(name: str, port: int) -> Sequence[str]:
        asked.append(name)
        return ["1.1.1.1", address]

    with pytest.raises(ToolError, match="not on the public internet"):
        await use(fetch_tool(Downloader(resolve=resolve)), url=f"http://{host}/latest/meta-data/")
    assert len(asked) == 1


async def test_a_permission_to_fetch_is_none_to_leave_the_guard() -> None:
    """Whoever permits the call permits this call, not what the guard is there for."""
    gate = ApprovalGate(MemoryGrantStore(), overrides={"fetch": "allow"})
    urls = ["http://169.254.169.254/latest/meta-data/", "http://[::ffff:127.0.0.1]/", "file:///etc/passwd"]
    calls = [Call("fetch", json.dumps({"url": url})) for url in urls]
    async with bed(calls, [Say("Done.")], tools=[fetch_tool()], gate=gate) as rig:
        _, reporter = await rig.run()
        ends = [event for event in reporter.events if isinstance(event, ToolEnded)]
        assert [event.is_error for event in ends] == [True] * 3
        assert "root:" not in str(rig.server.requests[1].body)


# --- files ---

SECRET = "the secret outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "docs").mkdir(parents=True)
    return root


@contextlib.contextmanager
def swapping(one: Path, other: Path, again: Callable[[], None]) -> Generator[None]:
    """Another thread exchanges two names as fast as it can; `again` puts right what a write has replaced."""
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            exchange(one, other)
            again()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def attempts(enough: Callable[[], bool]) -> Iterator[None]:
    """As many as fit into half a second, and more when that was not enough to see anything."""
    began = time.monotonic()
    while (took := time.monotonic() - began) < 0.5 or (not enough() and took < 15):
        yield


LINUX = pytest.mark.skipif(sys.platform != "linux", reason="names can be exchanged at once only on Linux")


def _other(kind: str, other: Path, target: Path) -> None:
    match kind:
        case "hard link":
            os.link(target, other)
        case "FIFO":
            os.mkfifo(other)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server, contextlib.chdir(other.parent):
                server.bind(other.name)
        case "link":
            other.symlink_to(target)
        case _:
            raise AssertionError(kind)


@LINUX
@pytest.mark.parametrize("kind", ["hard link", "FIFO", "socket"])
def test_what_is_put_in_the_place_of_a_file_between_check_and_open_is_never_used(
    root: Path, outside: Path, kind: str
) -> None:
    workspace, victim, other = Workspace(root), root / "docs/v", root / "other"
    target = outside / "secret.txt"
    victim.write_text("inside")
    _other(kind, other, target)

    def again() -> None:
        # A write may have replaced the trap: then there are two plain files, and one becomes a trap again.
        if other.is_file() and victim.is_file() and other.stat().st_nlink == victim.stat().st_nlink == 1:
            other.unlink()
            _other(kind, other, target)

    results: Counter[str] = Counter()

    def both_sides_seen() -> bool:
        return results["inside"] > 5 and results.total() - results["inside"] > 5

    with swapping(victim, other, again):
        for _ in attempts(both_sides_seen):
            try:
                results[workspace.read("docs/v").data.decode()] += 1
                workspace.write("docs/v", b"inside")
            except ToolError as error:
                results[str(error)] += 1
    assert SECRET not in results
    assert target.read_text() == SECRET
    assert both_sides_seen(), f"the swap never showed the one or the other: {results}"


@LINUX
def test_a_listing_never_shows_what_a_folder_was_exchanged_for(root: Path, outside: Path) -> None:
    workspace, victim, other = Workspace(root), root / "docs/v", root / "other"
    victim.mkdir()
    (victim / "mine.txt").touch()
    other.symlink_to(outside)
    seen: Counter[str] = Counter()
    with swapping(victim, other, lambda: None):
        for _ in attempts(lambda: min(seen["mine.txt"], seen["refused"]) > 5):
            try:
                seen[" ".join(entry.name for entry in workspace.entries("docs/v")[0])] += 1
            except ToolError as error:
                # Which words the refusal finds is not certain here: it looks once more to choose them.
                seen["refused" if "a folder is needed" in str(error) else str(error)] += 1
    assert set(seen) == {"mine.txt", "refused"}
    assert min(seen.values()) > 5, seen


# What a command in the sandbox leaves in the workspace as a trap for the file tools: (command, path, reason).
TRAPS = {
    "a link": ("ln -s {secret} trap", "trap", "symbolic link"),
    "a link as folder": ("ln -s {outside} trap", "trap/secret.txt", "symbolic link"),
    "a link to the root": ("ln -s / trap", "trap/etc/passwd", "symbolic link"),
    "a link to itself": ("ln -s trap trap", "trap", "symbolic link"),
    "a hard link": ("echo x > a; ln a trap", "trap", "hard links"),
    "a FIFO": ("mkfifo trap", "trap", "a FIFO"),
    "a deep folder": ("for i in $(seq 60); do mkdir d; cd d; done; echo x > trap", "d/" * 60 + "trap", "deeper than"),
    "a name that forges a line": ("touch 'a\nroot password: x'", "a\nroot password: x", "control or invisible"),
}


@pytest.mark.parametrize("trap", TRAPS)
async def test_what_a_command_leaves_behind_is_no_way_out_for_the_file_tools(
    root: Path, outside: Path, trap: str
) -> None:
    if (found := await Sandbox.find())[0] is None:
        pytest.skip(found[1])
    shell, _ = await shell_tool(workspace := Workspace(root))
    assert shell is not None
    tools = by_name(file_tools(workspace))
    command, path, reason = TRAPS[trap]
    said = await use(shell, command=command.format(secret=outside / "secret.txt", outside=outside), timeout_s=20)
    assert "exit code 0" in said
    for name, more in {
        "read_file": {}, "write_file": {"content": "harm"}, "edit_file": {"old": "x", "new": "harm"},
    }.items():  # fmt: skip
        async with asyncio.timeout(5):
            with pytest.raises(ToolError, match=reason):
                await use(tools[name], path=path, **more)
    assert (outside / "secret.txt").read_text() == SECRET
    listing = (await use(tools["list_files"])).split("\n")[1:]
    assert all("password" not in line or line.startswith("a\\n") for line in listing)
