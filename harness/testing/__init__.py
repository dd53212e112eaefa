"""Doubles and conformance suites, for the tests of whoever builds on the harness.

    ScriptedProvider      a model in this process: plays given answers, remembers what it was asked
    ScriptedModelServer   an OpenAI-compatible server in this process, for a real client across a real connection
    RawModelServer        the same for answers that are given byte by byte
    RecordingReporter     keeps every event of a task
    FakeClock             stands still until a test moves it
    AdmissionSuite        the promises of `Admission`, as a class to inherit for an implementation of one's own
    SessionSuite, GrantSuite, ParkingSuite, RecordSuite, WholeSuite     likewise those of the stores

Each name is imported when it is first used, so importing this package costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from harness.providers.scripted import ScriptedProvider
    from harness.reporters.recording import RecordingReporter
    from harness.testing.admission_suite import AdmissionSuite
    from harness.testing.fake_clock import FakeClock
    from harness.testing.model_server import ScriptedModelServer
    from harness.testing.raw_model_server import RawModelServer
    from harness.testing.record_suite import RecordSuite
    from harness.testing.store_suite import GrantSuite, ParkingSuite, SessionSuite
    from harness.testing.whole_suite import WholeSuite

_HOME_OF: Final = {
    "AdmissionSuite": "harness.testing.admission_suite",
    "FakeClock": "harness.testing.fake_clock",
    "GrantSuite": "harness.testing.store_suite",
    "ParkingSuite": "harness.testing.store_suite",
    "RawModelServer": "harness.testing.raw_model_server",
    "RecordSuite": "harness.testing.record_suite",
    "RecordingReporter": "harness.reporters.recording",
    "ScriptedModelServer": "harness.testing.model_server",
    "ScriptedProvider": "harness.providers.scripted",
    "SessionSuite": "harness.testing.store_suite",
    "WholeSuite": "harness.testing.whole_suite",
}

__all__ = [
    "AdmissionSuite",
    "FakeClock",
    "GrantSuite",
    "ParkingSuite",
    "RawModelServer",
    "RecordSuite",
    "RecordingReporter",
    "ScriptedModelServer",
    "ScriptedProvider",
    "SessionSuite",
    "WholeSuite",
]


if not TYPE_CHECKING:  # for a type checker only the names above exist, so that it finds a misspelt one

    def __getattr__(name: str) -> object:
        if (module := _HOME_OF.get(name)) is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(module), name)
        return value
