"""`harness run` in a terminal and in a script, against a model server across a real connection."""

import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from harness import __version__
from harness.providers.script import Call, Cut, Fail, Hang, Say, Script, Think
from harness.testing.model_server import ScriptedModelServer
from tests.terminal.rig import asked, clean_env, deltas, events, harness, in_turn, over, until, with_model

GREETING = [Say("Hello "), Say("there, "), Say("你好。")]
UNFINISHED = [Say("The first "), Say("half, ", 0.02), Say("then", 0.02), Hang()]

NUMBER = (int, float)
TOKENS = {"input_tokens": int, "output_tokens": int, "estimated": bool, "cost": (int, float, type(None))}
# The public lines: kind -> fields with their types.
FIELDS: dict[str, dict[str, Any]] = {
    "run:start": {"session": str, "input": str},
    "model:start": {"turn": int},
    "model:delta": {"text": str},
    "model:reasoning": {"text": str},
    "model:retry": {"attempt": int, "delay_s": NUMBER, "reason": str},
    "model:end": {"text": str, "tool_calls": list, "finish_reason": str, "usage": dict},
    "tool:start": {"call": dict},
    "tool:end": {"call_id": str, "name": str, "result": str, "is_error": bool, "duration_ms": int},
    "step": {"n": int, "type": str, "summary": str},
    "task:state": {"from": (str, type(None)), "to": str, "reason": str},
    "usage": TOKENS,
    "run:end": {
        "status": str, "stop_reason": str, "answer": str, "steps": int, "usage": dict, "error": (dict, type(None)),
    },
}  # fmt: skip
# What we say beyond that; readers ignore fields that they do not know.
MORE = {"task:state": {"position"}, "run:end": {"stop_by"}}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedModelServer]:
    async with ScriptedModelServer(speed=1.0) as running:
        yield running


def play(server: ScriptedModelServer, *scripts: Script) -> None:
    server._answer = in_turn(*scripts)


@pytest.mark.parametrize("json", [False, True])
async def test_the_answer_arrives_while_the_model_writes_and_ctrl_c_ends_it(
    tmp_path: Path, server: ScriptedModelServer, json: bool
) -> None:
    play(server, UNFINISHED)
    async with harness(tmp_path, "run", *["--json"][:json], "go", env=with_model(server)) as child:
        record = await asked(server, child)

        def shown() -> str:
            return deltas(child.lines) if json else child.text

        grown: list[str] = []

        def all_there() -> bool:
            text = shown()
            assert record.text_sent.startswith(text), "never ahead of the model, never anything else"
            grown.append(text)
            return text == "The first half, then"

        await until(all_there, "the text", child)
        assert record.finished_at is None, "the model has not finished, and everything it wrote is here"
        assert len(set(grown) - {""}) > 1, "it came piece by piece"

        child.interrupt()
        assert await child.end() == 130
        await over(record)
        assert record.closed_by_client
        if json:
            end = events(child)[-1]
            assert (end["status"], end["stop_reason"], end["error"]) == ("canceled", "canceled", None)
            assert end["answer"] == "The first half, then"
            assert child.errors == ""
        else:
            assert child.text == "The first half, then\n"
            assert child.errors == "[canceled]\n"


@pytest.mark.parametrize("json", [False, True])
async def test_ctrl_c_before_the_first_word(tmp_path: Path, server: ScriptedModelServer, json: bool) -> None:
    # With the fault not even the headers come: the request is all there is.
    play(server, [Hang()])
    if json:
        server.set_fault({"latency_ms": 60_000})
    async with harness(tmp_path, "run", *["--json"][:json], "go", env=with_model(server)) as child:
        record = await asked(server, child)
        child.interrupt()
        assert await child.end() == 130
        await over(record)
        assert record.closed_by_client
        if json:
            assert events(child)[-1]["status"] == "canceled"
        else:
            assert child.text == ""


async def test_an_impatient_second_ctrl_c_ends_it_too(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, UNFINISHED)
    async with harness(tmp_path, "run", "go", env=with_model(server)) as child:
        record = await asked(server, child)
        await until(lambda: child.out, "a word", child)
        for _ in range(3):
            child.interrupt()
        assert await child.end() == 130
        await over(record)
        assert record.closed_by_client


async def test_json_prints_the_documented_fields_of_every_kind(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(
        server,
        [Fail("overloaded", 503, retry_after=0.0)],
        [
            Think("Hm."),
            Say("Let me see."),
            Call("calculator", '{"expression": "2*(3+4)"}'),
            Call("calculator", '{"expression": '),
            Call("random_number", f'{{"min": {10**30}, "max": {10**30}}}'),
        ],
        GREETING,
    )
    # The prompt is no text: it must neither end the run nor cost a line.
    async with harness(tmp_path, "run", "--json", b"caf\xe9?", env=with_model(server)) as child:
        assert await child.end() == 0
        lines = events(child)
    assert {line["kind"] for line in lines} == set(FIELDS)
    for line in lines:
        kind = line["kind"]
        fields = {name: value for name, value in line.items() if name not in ("task_id", "seq", "at", "kind")}
        assert set(fields) - MORE.get(kind, set()) == set(FIELDS[kind]), kind
        for name, expected in FIELDS[kind].items():
            assert isinstance(fields[name], expected), (kind, name, fields[name])

    of = {kind: [line for line in lines if line["kind"] == kind] for kind in FIELDS}
    assert ascii(of["run:start"][0]["input"]) == ascii("caf\N{REPLACEMENT CHARACTER}?")
    assert [line["turn"] for line in of["model:start"]] == [1, 2]
    assert (of["model:retry"][0]["reason"], of["model:retry"][0]["attempt"]) == ("overloaded", 1)
    assert [line["n"] for line in of["step"]] == list(range(1, len(of["step"]) + 1))
    assert [line["type"] for line in of["step"]] == ["model", "tool", "tool", "tool", "model", "finish"]

    good, malformed, large = (line["call"] for line in of["tool:start"])
    assert set(good) == {"id", "name", "arguments"}
    assert good["arguments"] == {"expression": "2*(3+4)"}
    assert set(malformed) == {"id", "name", "raw_arguments"}
    assert isinstance(malformed["raw_arguments"], str)
    assert large["arguments"] == {"min": 10**30, "max": 10**30}, "whole numbers of any length, exactly"
    assert len({call["id"] for call in (good, malformed, large)}) == 3
    results = {line["call_id"]: (line["result"], line["is_error"]) for line in of["tool:end"]}
    assert results[good["id"]] == ("14", False)
    assert results[malformed["id"]][1] is True
    assert results[large["id"]] == (str(10**30), False)

    assert set(of["usage"][-1]) >= set(TOKENS)
    end = of["run:end"][0]
    assert set(end["usage"]) == set(TOKENS)
    assert (end["status"], end["stop_reason"], end["error"]) == ("completed", "finished", None)
    assert end["answer"] == "Let me see.\n\nHello there, 你好。"
    assert end["steps"] == len(of["step"])
    assert deltas(lines) == "Let me see.Hello there, 你好。"
    steps = [(line["from"], line["to"]) for line in of["task:state"]]
    assert steps == [(None, "running"), ("running", "completed")]


async def test_a_tool_runs_and_the_answer_stands_alone_on_standard_output(
    tmp_path: Path, server: ScriptedModelServer
) -> None:
    play(server, [Call("calculator", '{"expression": "2*(3+4)"}')], [Say("It is "), Say("**14**.")])
    async with harness(tmp_path, "run", "calc", env=with_model(server)) as child:
        assert await child.end() == 0
        assert child.text == "It is **14**.\n"
        assert "> calculator" in child.errors
        assert "= calculator: 14" in child.errors


async def test_without_streaming_the_answer_is_the_same(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, GREETING)
    async with harness(tmp_path, "run", "--no-stream", "hi", env=with_model(server)) as child:
        assert await child.end() == 0
        assert child.text == "Hello there, 你好。\n"
    assert not orjson.loads(server.requests[0].body).get("stream")


async def test_the_question_may_come_by_a_pipe_in_any_language(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, GREETING)
    question = "今天天气怎么样？\n第二行。"
    async with harness(tmp_path, "run", env=with_model(server), stdin=question.encode() + b" \xff\n") as child:
        assert await child.end() == 0
        assert child.text == "Hello there, 你好。\n"
    assert server.requests[0].prompt.strip() == question + " \N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("json", [False, True])
async def test_a_terminal_of_another_encoding_loses_signs_but_no_line(
    tmp_path: Path, server: ScriptedModelServer, json: bool
) -> None:
    play(server, GREETING)
    env = with_model(server, PYTHONUTF8="0", PYTHONIOENCODING="latin-1")
    async with harness(tmp_path, "run", *["--json"][:json], "hi", env=env) as child:
        assert await child.end() == 0
    if json:
        assert events(child)[-1]["answer"] == "Hello there, 你好。", "JSON is UTF-8 everywhere"
    else:
        assert child.out == b"Hello there, ???\n"


@pytest.mark.parametrize("json", [False, True])
async def test_no_key_is_one_sentence_that_says_what_to_set(tmp_path: Path, json: bool) -> None:
    async with harness(tmp_path, "run", *["--json"][:json], "hi", env=clean_env(OPENAI_API_KEY="")) as child:
        assert await child.end() == 2
        assert child.text == ""
        assert child.errors.count("\n") == 1
        for name in ("OPENAI_API_KEY", "OPENAI_MODEL", "--model scripted"):
            assert name in child.errors


async def test_the_scripted_model_needs_no_key(tmp_path: Path) -> None:
    async with harness(tmp_path, "run", "--model", "scripted", "calc 2*(3+4)", env=clean_env()) as child:
        assert await child.end() == 0
        assert "14" in child.text
        assert "= calculator: 14" in child.errors


# What is wrong with the use: (arguments, environment, what the one line names).
WRONG_USE: dict[str, tuple[Sequence[str], dict[str, str], str]] = {
    "no question": (["run", "--model", "scripted"], {}, "There is no question"),
    "a blank question": (["run", " \n"], {}, "There is no question"),
    "a wrong number": (["run", "hi"], {"IDLE_TIMEOUT_S": "soon-sk-123456"}, "IDLE_TIMEOUT_S"),
    "a time without end": (["run", "hi"], {"RUN_TIMEOUT_S": "inf"}, "RUN_TIMEOUT_S"),
    "no such file": (["run", "hi"], {"SYSTEM_PROMPT_FILE": "nowhere.md", "OPENAI_API_KEY": "k", "OPENAI_MODEL": "m"},
                     "SYSTEM_PROMPT_FILE"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_USE)
async def test_wrong_use_is_one_line_and_exit_2(tmp_path: Path, case: str) -> None:
    args, env, named = WRONG_USE[case]
    async with harness(tmp_path, *args, env=clean_env(**env), stdin=b"") as child:
        assert await child.end() == 2
        assert (child.text, child.errors.count("\n")) == ("", 1)
        assert named in child.errors
        assert "sk-123456" not in child.errors, "a value may be a secret"


async def test_an_unknown_option_is_wrong_use(tmp_path: Path) -> None:
    async with harness(tmp_path, "run", "--what", "hi", env=clean_env()) as child:
        assert await child.end() == 2
        assert "--what" in child.errors


ONCE = {"MODEL_RETRIES": "0"}
# How a model fails: (script, more arguments, more settings, standard output, what the line says, error kind).
FAILURES: dict[str, tuple[Script, list[str], dict[str, str], str, str, str]] = {
    "over its limit": ([Fail("rate_limit", 429, "Slow down")], [], {}, "", "Slow down", "rate_limit"),
    "overloaded": ([Fail("overloaded", 500, "Oh no")], [], {}, "", "Oh no", "overloaded"),
    "refused": ([Fail("auth", 401, "No such key")], [], {}, "", "No such key", "auth"),
    "cut": ([Say("half "), Say("an answer"), Cut()], [], {}, "half an answer\n", "ended", "truncated"),
    "silent": ([Hang()], [], {"FIRST_DELTA_TIMEOUT_S": "0.3"}, "", "did not start", "timeout"),
    "gone silent": ([Say("half"), Hang()], [], {"IDLE_TIMEOUT_S": "0.3"}, "half\n", "went silent", "timeout"),
    "out of time": ([Hang()], ["--no-stream"], {"RUN_TIMEOUT_S": "0.3"}, "", "timed_out", ""),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_a_failing_model_is_exit_1_and_one_clear_line(
    tmp_path: Path, server: ScriptedModelServer, case: str
) -> None:
    script, args, more, out, says, _ = FAILURES[case]
    play(server, script)
    async with harness(tmp_path, "run", *args, "go", env=with_model(server, **{**ONCE, **more})) as child:
        assert await child.end() == 1
        assert child.text == out, "what was shown stays"
        assert child.errors.count("\n") == 1, child.errors
        assert says in child.errors


@pytest.mark.parametrize("case", ["cut", "out of time"])
async def test_a_failing_model_in_json(tmp_path: Path, server: ScriptedModelServer, case: str) -> None:
    script, args, more, out, _, kind = FAILURES[case]
    play(server, script)
    async with harness(tmp_path, "run", "--json", *args, "go", env=with_model(server, **{**ONCE, **more})) as child:
        assert await child.end() == 1
        assert child.errors == ""
    end = events(child)[-1]
    assert end["answer"] == out.rstrip("\n")
    if kind:
        assert (end["status"], end["stop_reason"], end["error"]["kind"]) == ("failed", "failed", kind)
        assert set(end["error"]) == {"kind", "message"}
    else:
        assert (end["status"], end["stop_reason"], end["error"]) == ("timed_out", "timeout", None)


@pytest.mark.parametrize("json", [False, True])
async def test_when_nobody_reads_on_the_run_stops_quietly(
    tmp_path: Path, server: ScriptedModelServer, json: bool
) -> None:
    play(server, [Say(f"word {n} ", 0.02) for n in range(3_000)])
    reading, writing = os.pipe()
    try:
        async with harness(tmp_path, "run", *["--json"][:json], "go", env=with_model(server), stdout=writing) as child:
            os.close(writing)
            record = await asked(server, child)
            await until(lambda: record.text_sent, "the first word", child)
            os.close(reading)
            reading = -1
            assert await child.end() == 130
            assert child.errors.replace("[canceled]\n", "") == ""
            await over(record)
            assert record.closed_by_client, "an answer that nobody reads is not paid for"
    finally:
        if reading >= 0:
            os.close(reading)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
async def test_an_answer_that_cannot_be_written_is_a_failure(tmp_path: Path, server: ScriptedModelServer) -> None:
    play(server, GREETING)
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        async with harness(tmp_path, "run", "hi", env=with_model(server), stdout=full) as child:
            assert await child.end() == 1
            assert "cannot be written" in child.errors
    finally:
        os.close(full)


async def test_version(tmp_path: Path) -> None:
    async with harness(tmp_path, "version", env=clean_env()) as child:
        assert await child.end() == 0
        assert child.text == f"{__version__}\n"
