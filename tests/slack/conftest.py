"""Time is not what the property tests are about, and a busy machine must not fail them."""

from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
