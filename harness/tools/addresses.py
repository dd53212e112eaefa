"""Which network addresses may be fetched: those of the public internet, and no others. Pure.

Hosts are judged by the addresses that they resolve to, never by their names. The tables are our own, because the
`ipaddress` module's idea of "global" differs between Python versions; sources: the IANA special-purpose registries.
"""

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from harness.errors import ToolError

Address = IPv4Address | IPv6Address

_V4: Final = [
    (IPv4Network(network), reason)
    for network, reason in {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.100.100.200/32": "a cloud metadata service",
        "100.64.0.0/10": "private (carrier-grade NAT)",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "a cloud metadata service",
        "169.254.0.0/16": "link-local",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "reserved for documentation",
        "192.88.99.0/24": "a 6to4 relay",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "reserved for benchmarks",
        "198.51.100.0/24": "reserved for documentation",
        "203.0.113.0/24": "reserved for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
    }.items()
]
_V6: Final = [
    (IPv6Network(network), reason)
    for network, reason in {
        "::/128": "unspecified",
        "::1/128": "loopback",
        "::ffff:0:0/96": "an IPv4 address in disguise",
        "::/96": "an IPv4 address in disguise",
        "64:ff9b:1::/48": "a local NAT64 prefix",
        "2001::/32": "a Teredo tunnel",
        "2001::/23": "reserved",
        "2001:db8::/32": "reserved for documentation",
        "2002::/16": "a 6to4 tunnel",
        "3fff::/20": "reserved for documentation",
        "fc00::/7": "private",
        "fe80::/10": "link-local",
        "fec0::/10": "private",
        "ff00::/8": "multicast",
    }.items()
]
_GLOBAL_V6: Final = IPv6Network("2000::/3")
"""All that IANA has given out for the internet. What lies outside is refused unread."""
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})
_NUMBER: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")


def refusal(address: Address) -> str | None:
    """Why this address must not be connected to ("loopback"), or None when it is a public one."""
    if isinstance(address, IPv4Address):
        return next((reason for network, reason in _V4 if address in network), None)
    if address.scope_id is not None:
        return "bound to a network interface"
    if address in _NAT64:
        # A network without IPv4 reaches all of it through this prefix, so here the address inside decides.
        return refusal(IPv4Address(int(address) & 0xFFFFFFFF))
    if reason := next((reason for network, reason in _V6 if address in network), None):
        return reason
    if address not in _GLOBAL_V6:
        return "reserved"
    return "an ISATAP tunnel" if (int(address) >> 32) & 0xFFFFFFFF in _ISATAP else None


def literal(host: str) -> Address | None:
    """The address that a URL's host part is (without brackets), or None when it is a name.

    ToolError for spellings that programs read in different ways: octal, hexadecimal, decimal, short forms, zones.
    """
    if ":" in host:
        try:
            return IPv6Address(host) if "%" not in host else _odd(host)
        except ValueError:
            return _odd(host)
    if _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        # The last label is a number, so to a browser this is an IPv4 address, in whatever spelling.
        try:
            address = ip_address(host)
        except ValueError:
            return _odd(host)
        return address if str(address) == host else _odd(host)
    return None


def _odd(host: str) -> Address:
    raise ToolError(f"The address {host[:100]!r} is written in an unusual way. Use the plain form or a name.")
