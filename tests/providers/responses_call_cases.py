"""Function calls as servers of the Responses API send them, and what each must come to.

Ids that begin with W are rows of the wire specification.
"""

from tests.providers.responses_wire import CREATED, added, done, end, ev, fcall, incomplete, message, more, named, say
from tests.providers.wire import Good, sse

F = ("f", {"a": 1})
G = ("g", {"b": 2})
B = '{"b": 2}'

TOOLS = {
    "as-the-api-writes-it": (
        named(
            CREATED,
            added(fcall()),
            more('{"a"'),
            more(": 1}"),
            ev("function_call_arguments.done", item_id="fc_x", output_index=0, arguments='{"a": 1}', name="f"),
            done(fcall()),
            end(fcall()),
        ),
        Good(calls=[F], ids=["x"]),
    ),
    "end-alone": (sse(end(fcall(), fcall("g", B, "y"))), Good(calls=[F, G], ids=["x", "y"])),
    "item-alone": (sse(done(fcall()), done(fcall("g", B, "y"), 1), end()), Good(calls=[F, G], ids=["x", "y"])),
    "pieces-alone": (sse(added(fcall()), more('{"a"'), more(": 1}"), end()), Good(calls=[F], ids=["x"])),
    "arguments-in-one-piece": (
        sse(added(fcall()), ev("function_call_arguments.done", output_index=0, arguments='{"a": 1}'), end()),
        Good(calls=[F], ids=["x"]),
    ),
    "arguments-from-the-beginning": (
        sse(ev("output_item.added", output_index=0, item=fcall()), end()),
        Good(calls=[F], ids=["x"]),
    ),
    "arguments-from-the-beginning-and-in-pieces": (
        sse(ev("output_item.added", output_index=0, item=fcall()), more('{"a"'), more(": 1}"), end()),
        Good(calls=[F], ids=["x"]),
    ),
    "braces-from-the-beginning-and-pieces": (
        sse(ev("output_item.added", output_index=0, item=fcall(args="{}")), more('{"a"'), more(": 1}"), end()),
        Good(calls=[F], ids=["x"]),
    ),
    "lost-pieces": (sse(added(fcall()), more('{"a"'), done(fcall()), end(fcall())), Good(calls=[F], ids=["x"])),
    "written-anew-at-the-end": (
        sse(added(fcall()), more('{"a":1}'), done(fcall()), end(fcall(args='{"a" :1}'))),
        Good(calls=[F]),
    ),
    "emptied-at-the-end": (
        sse(added(fcall()), more('{"a": 1}'), done(fcall(args="")), end(fcall(args="{}"))),
        Good(calls=[F], ids=["x"]),
    ),
    "announced-at-the-end-only": (
        sse(more('{"a"'), more(": 1}"), done(fcall()), end(fcall())),
        Good(calls=[F], ids=["x"]),
    ),
    "named-at-the-end-only": (
        sse(added(fcall(name="")), more('{"a": 1}'), end(fcall())),
        Good(calls=[F], ids=["x"]),
    ),
    "text-and-calls": (
        sse(say("Hi"), added(fcall(), 1), more('{"a": 1}', 1), done(fcall(), 1), end(message("Hi"), fcall())),
        Good("Hi", calls=[F], ids=["x"]),
    ),
    "W29-without-place": (
        sse(
            ev("output_item.added", item=fcall(args="")),
            ev("function_call_arguments.delta", delta='{"a": 1}'),
            ev("output_item.done", item=fcall()),
            ev("output_item.added", item=fcall("g", "", "y")),
            ev("function_call_arguments.delta", delta=B),
            ev("output_item.done", item=fcall("g", B, "y")),
            end(),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W31-an-item-id-of-its-own-in-each-event": (
        sse(
            added(fcall(id="1"), 0),
            added(fcall("g", "", "y", id="2"), 1),
            more('{"b"', 1, "3"),
            more('{"a"', 0, "4"),
            more(": 2}", 1, "5"),
            more(": 1}", 0, "6"),
            done(fcall(id="7"), 0),
            done(fcall("g", B, "y", id="8"), 1),
            end(fcall(id="9"), fcall("g", B, "y", id="10")),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W35-interleaved": (
        sse(
            added(fcall(), 0),
            added(fcall("g", "", "y"), 1),
            more('{"b"', 1, "fc_y"),
            more('{"a"', 0),
            more(": 1}", 0),
            more(": 2}", 1, "fc_y"),
            done(fcall("g", B, "y"), 1),
            done(fcall(), 0),
            end(fcall(), fcall("g", B, "y")),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "interleaved-under-one-place": (
        sse(
            added(fcall(), 0),
            added(fcall("g", "", "y"), 0),
            more('{"a"', 0),
            more('{"b"', 0, "fc_y"),
            more(": 1}", 0),
            more(": 2}", 0, "fc_y"),
            end(fcall(), fcall("g", B, "y")),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "interleaved-under-one-item-id": (
        sse(
            added(fcall(id="i"), 0),
            added(fcall("g", "", "y", id="i"), 1),
            more('{"a"', 0, "i"),
            more('{"b"', 1, "i"),
            more(": 1}", 0, "i"),
            more(": 2}", 1, "i"),
            end(),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W36-places-with-gaps": (
        sse(
            added(fcall(), 3),
            more('{"a": 1}', 3),
            added(fcall("g", "", "y"), 7),
            more(B, 7),
            end(fcall(), fcall("g", B, "y")),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "W38-no-arguments": (
        sse(*[done(fcall(f"f{i}", args, str(i)), i) for i, args in enumerate(["", None, "null", " \n", "{}"])], end()),
        Good(calls=[(f"f{i}", {}) for i in range(5)]),
    ),
    "W39-object-arguments": (sse(done(fcall(args={"a": 1})), end(fcall(args={"a": 1}))), Good(calls=[F])),
    "W40-no-id": (
        sse(
            added(fcall(call_id=None, id=None)),
            more('{"a": 1}', item_id=""),
            done(fcall(call_id=None, id=None)),
            end(fcall(call_id=None, id=None)),
        ),
        Good(calls=[F], ids=[""]),
    ),
    "W40-no-id-two-of-a-kind": (
        sse(
            added(fcall(call_id=None, id=None)),
            done(fcall(call_id=None, id=None)),
            added(fcall(call_id=None, id=None)),
            done(fcall(call_id=None, id=None)),
            end(),
        ),
        Good(calls=[F, F], ids=["", ""]),
    ),
    "W41-one-call-id-for-two": (
        sse(
            added(fcall()),
            done(fcall()),
            added(fcall("g", "", "x"), 1),
            done(fcall("g", B, "x"), 1),
            end(fcall(), fcall("g", B, "x")),
        ),
        Good(calls=[F, G], ids=["x", "x"]),
    ),
    "W41-one-call-id-for-two-of-a-kind": (
        sse(
            added(fcall(id="1"), 0),
            added(fcall(id="2"), 1),
            more('{"a": 1}', 0, "1"),
            more('{"a": 2}', 1, "2"),
            end(fcall(), fcall(args='{"a": 2}')),
        ),
        Good(calls=[F, ("f", {"a": 2})], ids=["x", "x"]),
    ),
    "W42-id-kept": (sse(end(fcall(call_id="functions.f:0"))), Good(calls=[F], ids=["functions.f:0"])),
    "other-call-ids-at-the-end": (
        sse(added(fcall()), more('{"a": 1}'), done(fcall()), end(fcall(call_id="z"))),
        Good(calls=[F], ids=["x"]),
    ),
    "announced-twice": (
        sse(added(fcall()), more('{"a"'), added(fcall()), more(": 1}"), done(fcall()), added(fcall()), end(fcall())),
        Good(calls=[F], ids=["x"]),
    ),
    "finished-twice": (sse(done(fcall()), done(fcall()), end(fcall())), Good(calls=[F], ids=["x"])),
    "pieces-after-the-whole": (
        sse(added(fcall()), done(fcall()), more('{"a": 2}'), end(fcall())),
        Good(calls=[F], ids=["x"]),
    ),
    "pieces-after-the-whole-while-another-is-open": (
        sse(added(fcall()), done(fcall()), added(fcall("g", "", "y"), 1), more('{"a": 2}'), more(B, 1, "fc_y"), end()),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "one-place-for-all-one-after-another": (
        sse(
            added(fcall(id=None)),
            more('{"a": 1}', item_id=""),
            done(fcall(id=None)),
            added(fcall("g", "", "y", id=None)),
            more(B, item_id=""),
            end(),
        ),
        Good(calls=[F, G], ids=["x", "y"]),
    ),
    "one-more-at-the-end": (
        sse(added(fcall()), done(fcall()), end(fcall(), fcall(args='{"a": 3}', call_id="z"))),
        Good(calls=[F, ("f", {"a": 3})], ids=["x", "z"]),
    ),
    "W23-cut-arguments": (
        sse(added(fcall()), more('{"a": '), incomplete("max_output_tokens", fcall(args='{"a": ', status="incomplete"))),
        Good(calls=[("f", None)]),
    ),
    "W23-cut-before-the-arguments": (
        sse(added(fcall()), incomplete("max_output_tokens", fcall(args="", status="incomplete"))),
        Good(calls=[("f", None)]),
    ),
    "W23-cut-before-the-arguments-and-the-item": (
        sse(done(fcall()), added(fcall("g", "", "y"), 1), incomplete("max_output_tokens")),
        Good(calls=[F, ("g", None)]),
    ),
    "malformed-array": (sse(done(fcall(args="[1]")), end()), Good(calls=[("f", None)])),
    "wrong-types": (
        sse(
            added(fcall() | {"id": 3, "call_id": 4, "name": []}),
            more("") | {"delta": 5, "item_id": {}, "output_index": "0"},
            done(fcall() | {"status": {}}),
            end(fcall()),
        ),
        Good(calls=[F], ids=["x"]),
    ),
}
