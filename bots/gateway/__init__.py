"""The one gate that every inbound event passes, and the questions for permission that go out and come back."""

from bots.gateway.gate import TOO_OLD_S, ChatMemory, Gateway, GatewayRules, Outcome

__all__ = ["TOO_OLD_S", "ChatMemory", "Gateway", "GatewayRules", "Outcome"]
