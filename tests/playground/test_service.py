"""The service as a child process, with small scripts in its place; and `bots demo` where it must not start."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import pytest

from bots.playground.demo import _model, _service_env, run_demo
from bots.playground.service import ServiceDiedError, ServiceProcess
from bots.playground.serving import bind, free_port
from tests.playground.rig import slack

SERVER = """
import http.server, os, sys
class Ready(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/readyz" else 404); self.end_headers()
    def log_message(self, *args): pass
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", int(os.environ["BOTS_PORT"])), Ready).serve_forever()
"""


def service(tmp_path, script: str) -> ServiceProcess:
    port = free_port()
    env = {**os.environ, "BOTS_PORT": str(port)}
    command = (sys.executable, "-c", script)
    return ServiceProcess(env=env, port=port, log=tmp_path / "data" / "service.log", command=command)


async def test_it_becomes_ready_and_stops_on_sigterm(tmp_path):
    process = service(tmp_path, SERVER)
    await process.start()
    await process.ready()
    assert process.pid is not None
    await process.stop()
    assert process.pid is None
    assert process.exit_code() == "killed by SIGTERM"
    assert "serving" in process.last_output()
    await process.stop()


async def test_one_that_dies_says_its_last_words(tmp_path):
    process = service(tmp_path, "print('SLACK_BOT_TOKEN is missing'); raise SystemExit(2)")
    await process.start()
    with pytest.raises(ServiceDiedError, match=r"ended \(exit code 2\)(?s:.*)SLACK_BOT_TOKEN is missing"):
        await process.ready()


async def test_a_killed_one_is_noticed_and_can_be_started_again(tmp_path):
    process = service(tmp_path, SERVER)
    await process.start()
    await process.ready()
    first = process.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await asyncio.wait_for(process.wait(), 5)
    assert process.exit_code() == "killed by SIGKILL"
    await process.start()
    await process.ready()
    assert process.pid != first
    await process.stop()


async def test_a_taken_port_that_was_asked_for_is_one_sentence_and_exit_code_2(capsys):
    with contextlib.closing(bind("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert await run_demo(port=port, open_browser=False) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"Port {port} on 127.0.0.1 is already in use. "
        "Choose another one with --port, or leave it out to get a free one.\n"
    )


def write_dotenv(text: str) -> None:
    Path(".env").write_text(text)


@pytest.fixture
def no_settings(tmp_path, monkeypatch):
    """No .env in the current folder and no model in the environment."""
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "MODEL_PROTOCOL", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


async def test_without_a_key_the_scripted_model_answers_and_can_be_broken(no_settings):
    async with _model() as model:
        assert model.env["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
        assert model.env["OPENAI_BASE_URL"].endswith("/v1")
        assert model.faults is not None


async def test_a_model_in_the_environment_or_in_dotenv_is_used_as_it_is(no_settings, monkeypatch):
    write_dotenv("OPENAI_API_KEY=sk-x\nOPENAI_MODEL=some-model\n")
    async with _model() as model:
        assert (model.label, model.env, model.faults) == ("Model: some-model", {}, None)
    # An empty value is no value.
    write_dotenv("OPENAI_API_KEY=\n")
    async with _model() as model:
        assert model.faults is not None
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1")
    async with _model() as model:
        assert model.faults is None


async def test_the_service_gets_the_choice_of_model_and_nothing_else_of_the_users_settings(no_settings, monkeypatch):
    write_dotenv("OPENAI_API_KEY=sk-x\nOPENAI_MODEL=m\nREDIS_URL=redis://production\nSYSTEM_PROMPT_FILE=persona.txt\n")
    monkeypatch.setenv("ALLOWED_USERS", "U1")
    async with slack() as server, _model() as model:
        env = _service_env(server, model, 4711, page_port=8000)
    assert (env["OPENAI_API_KEY"], env["OPENAI_MODEL"]) == ("sk-x", "m")
    assert env["SYSTEM_PROMPT_FILE"] == str(Path("persona.txt").absolute())
    assert not {"REDIS_URL", "ALLOWED_USERS"} & set(env)


async def test_the_service_gets_the_stand_in_s_addresses_whatever_the_environment_says(no_settings, monkeypatch):
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-the-real-one")
    monkeypatch.setenv("BOTS_DATA_DIR", "mine")
    monkeypatch.setenv("no_proxy", "intranet")
    async with slack() as server, _model() as model:
        env = _service_env(server, model, 4711, page_port=8000)
        assert env["SLACK_BOT_TOKEN"] == server.token
        assert env["SLACK_API_URL"] == server.api_url
        assert (env["BOTS_PORT"], env["BOTS_DATA_DIR"]) == ("4711", str(Path("mine").absolute()))
        assert env["no_proxy"] == "intranet,127.0.0.1,localhost"
