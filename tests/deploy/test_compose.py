"""compose.yaml: the settings are real, the addresses fit together, and the databases are neither open nor forgetful."""

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from bots.app import CARD_GRACE_S
from bots.coordination.embedded import server_binary
from bots.playground.serving import free_port
from bots.settings import Settings
from harness.stores.address import PostgresAddress, parse_address
from tests.deploy.reading import DEPLOY, ROOT, SETTINGS, compose, image_environment, last, seconds

FILE = compose(VALKEY_PASSWORD="v4lkey", POSTGRES_PASSWORD="p0stgres")
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
BOTS = SERVICES["bots"]
DATABASES = {name: service for name, service in SERVICES.items() if name != "bots"}
every_service = pytest.mark.parametrize("name", SERVICES)


def test_a_stop_waits_longer_than_the_drain_and_what_follows_it() -> None:
    drain = Settings.model_fields["drain_s"].default
    assert seconds(BOTS["stop_grace_period"]) >= drain + CARD_GRACE_S + 10


def test_every_name_is_a_setting_that_the_service_reads() -> None:
    assert set(BOTS["environment"]) <= SETTINGS


def test_the_settings_are_valid_and_name_servers_of_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in BOTS["environment"].items():
        monkeypatch.setenv(name, value)
    settings = Settings(_env_file=None)  # type: ignore[call-arg]
    assert settings.redis_url is not None
    redis = urlsplit(settings.redis_url)
    assert redis.password == SERVICES[str(redis.hostname)]["environment"]["VALKEY_PASSWORD"] == "v4lkey"
    database = parse_address(BOTS["environment"]["DATABASE_URL"], settings.bots_data_dir)
    assert isinstance(database, PostgresAddress)
    server = SERVICES[database.host]["environment"]
    assert (database.user, database.password, database.database) == (
        server["POSTGRES_USER"], server["POSTGRES_PASSWORD"], server["POSTGRES_DB"],
    )  # fmt: skip
    assert {redis.hostname, database.host} == set(BOTS["depends_on"])


def test_the_service_waits_until_its_servers_are_healthy() -> None:
    for name, condition in BOTS["depends_on"].items():
        assert condition["condition"] == "service_healthy"
        assert SERVICES[name]["healthcheck"]["test"]
    assert last("HEALTHCHECK").words, "its own comes with the image"


def test_only_the_service_is_published_on_this_machine_alone_with_a_port_for_each_of_two_replicas() -> None:
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["bots"]
    (published,) = BOTS["ports"]
    host, ports, inner = published.split(":")
    first, final = map(int, ports.split("-"))
    assert host == "127.0.0.1"
    assert final - first >= 1
    assert inner == BOTS["environment"]["BOTS_PORT"] == image_environment()["BOTS_PORT"]


def test_the_databases_have_no_way_out() -> None:
    for service in DATABASES.values():
        assert [FILE["networks"][network].get("internal") for network in service["networks"]] == [True]
    assert any(not FILE["networks"][network].get("internal") for network in BOTS["networks"])


@every_service
def test_nothing_runs_with_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert "no-new-privileges:true" in service["security_opt"]
    assert service["deploy"]["resources"]["limits"].keys() == {"memory", "pids"}
    user = service.get("user") or last("USER").text
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)


@every_service
def test_the_volumes_exist_and_hold_what_must_survive(name: str) -> None:
    volumes = dict(volume.split(":") for volume in SERVICES[name]["volumes"])
    assert volumes
    assert volumes.keys() <= FILE["volumes"].keys()
    if name == "bots":
        assert BOTS["environment"]["BOTS_DATA_DIR"] in volumes.values()
        assert last("VOLUME").text in volumes.values()


def test_each_volume_belongs_to_one_service() -> None:
    used = [volume.split(":")[0] for service in SERVICES.values() for volume in service["volumes"]]
    assert sorted(used) == sorted(FILE["volumes"])


def test_foreign_images_are_exact_releases() -> None:
    for service in DATABASES.values():
        assert re.fullmatch(r"[\w/]+:\d+\.\d+[\w.-]*", service["image"])


def test_the_files_that_it_names_exist() -> None:
    context = (DEPLOY / BOTS["build"]["context"]).resolve()
    assert context == ROOT
    assert (context / BOTS["build"]["dockerfile"]).is_file()
    assert (DEPLOY / (BOTS["env_file"] + ".example")).is_file()
    assert "version" not in FILE, "obsolete: compose warns of it"


def test_every_variable_is_in_the_example_and_no_password_has_a_value() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    needed = set(re.findall(r"\$\{(\w+)", text))
    example = dict(re.findall(r"^(\w+)=(.*)$", (DEPLOY / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    assert needed == set(example)
    for name in needed:
        if "PASSWORD" in name:
            assert example[name] == ""
            assert f"${{{name}:-" not in text, "a password has no default"
            assert f"${{{name}:?" in text, "one that is missing stops the start"


def its_command(port: int, folder: Path) -> list[str]:
    """The command of the container as Docker runs it, on another port and folder."""
    shell, option, script = (word.replace("$$", "$") for word in SERVICES["valkey"]["command"])
    assert "\ndir /data\n" in script
    return [shell, option, script.replace("\ndir /data\n", f"\ndir {folder}\nport {port}\nbind 127.0.0.1\n")]


@asynccontextmanager
async def its_valkey(port: int, folder: Path) -> AsyncGenerator[tuple[asyncio.subprocess.Process, Redis]]:
    """The container's process, killed at the end, and a client that knows the password, once the server answers."""
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "VALKEY_PASSWORD": "v4lkey"}
    process = await asyncio.create_subprocess_exec(*its_command(port, folder), env=env, stdout=subprocess.DEVNULL)
    try:
        async with Redis.from_url(f"redis://:v4lkey@127.0.0.1:{port}/0", decode_responses=True) as client:
            async with asyncio.timeout(20):
                while True:
                    with suppress(RedisConnectionError):
                        await client.ping()
                        break
                    assert process.returncode is None
                    await asyncio.sleep(0.02)
            yield process, client
    finally:
        process.kill()
        await process.wait()


async def test_its_valkey_asks_for_the_password_evicts_nothing_and_keeps_all_over_a_kill(tmp_path: Path) -> None:
    # The container finds its server by name; here that name is a link to ours.
    (tmp_path / "valkey-server").symlink_to(server_binary())
    port = free_port()
    async with its_valkey(port, tmp_path) as (process, client):
        wanted = {"maxmemory-policy": "noeviction", "appendonly": "yes", "appendfsync": "everysec"}
        assert await client.config_get(*wanted) == wanted
        assert int((await client.config_get("maxmemory"))["maxmemory"]) > 0
        await client.set("run", "kept")
        async with Redis.from_url(f"redis://127.0.0.1:{port}/0") as stranger:
            with pytest.raises(AuthenticationError):
                await stranger.get("run")
        shown = Path(f"/proc/{process.pid}/cmdline")
        assert not shown.exists() or b"v4lkey" not in shown.read_bytes()
    async with its_valkey(port, tmp_path) as (_, client):
        assert await client.get("run") == "kept"
