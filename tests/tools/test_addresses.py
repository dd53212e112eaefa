"""Which addresses are public, held against the standard library's facts."""

import ipaddress
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from harness.errors import ToolError
from harness.tools.addresses import literal, refusal

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "100.64.0.1": "carrier-grade",
    "100.127.255.255": "carrier-grade",
    "100.100.100.200": "metadata",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "metadata",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.1": "reserved",
    "192.168.1.1": "private",
    "198.18.0.1": "benchmarks",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::127.0.0.1": "disguise",
    "::ffff:127.0.0.1": "disguise",
    "::ffff:8.8.8.8": "disguise",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local",
    "64:ff9b:1::1": "NAT64",
    "2001::1": "Teredo",
    "2001:0:53aa:64c:0:fbff:7f00:1": "Teredo",
    "2001:db8::1": "documentation",
    "2001:20::1": "reserved",
    "2002:7f00:1::": "6to4",
    "2002:808:808::1": "6to4",
    "2a00:1450::5efe:7f00:1": "ISATAP",
    "2a00:1450::200:5efe:a00:1": "ISATAP",
    "3fff::1": "documentation",
    "5f00::1": "reserved",
    "fc00::1": "private",
    "fd00:ec2::254": "private",
    "fe80::1": "link-local",
    "fe80::1%eth0": "interface",
    "2606:4700::1%eth0": "interface",
    "fec0::1": "private",
    "ff02::1": "multicast",
    "::ffff:0:127.0.0.1": "reserved",
    "4000::1": "reserved",
}


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_public_is_refused_with_its_kind(address: str) -> None:
    assert REFUSED[address] in (refusal(ip_address(address)) or "allowed")


PUBLIC_V4 = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "169.253.0.1"]
PUBLIC_V6 = ["2606:4700:4700::1111", "2a00:1450:4001::200e", "64:ff9b::808:808"]


@pytest.mark.parametrize("address", PUBLIC_V4 + PUBLIC_V6)
def test_public_addresses_are_allowed(address: str) -> None:
    assert refusal(ip_address(address)) is None


def harmful(address: IPv4Address | IPv6Address) -> bool:
    return (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or (isinstance(address, IPv6Address) and address.is_site_local)
    )


EDGES = [ipaddress.ip_network(n) for n in ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "fc00::/7", "fe80::/10")]
NAT64 = ipaddress.ip_network("64:ff9b::/96")
V4 = st.one_of(st.ip_addresses(v=4), *[st.ip_addresses(network=n) for n in EDGES if n.version == 4])
V6 = st.one_of(st.ip_addresses(v=6), *[st.ip_addresses(network=n) for n in EDGES if n.version == 6])


@given(st.one_of(V4, V6, st.ip_addresses(network="2000::/3")))
@example(ip_address("192.0.0.9"))
def test_nothing_that_the_standard_library_calls_special_is_allowed(address: IPv4Address | IPv6Address) -> None:
    assume(address not in NAT64)  # there the address inside decides: the next test
    if harmful(address):
        assert refusal(address) is not None
    if refusal(address) is None:
        assert address.is_global


@given(V4)
def test_an_ipv4_address_gains_nothing_by_being_embedded(address: IPv4Address) -> None:
    number = int(address)
    forms = {
        "mapped": IPv6Address((0xFFFF << 32) | number),
        "compatible": IPv6Address(number),
        "NAT64": IPv6Address((0x64FF9B << 96) | number),
        "6to4": IPv6Address((0x2002 << 112) | (number << 80) | 1),
        "Teredo": IPv6Address((0x20010000 << 96) | (number ^ 0xFFFFFFFF)),
        "ISATAP": IPv6Address((0x2A001450 << 96) | (0x5EFE << 32) | number),
        "ISATAP global": IPv6Address((0x2A001450 << 96) | (0x02005EFE << 32) | number),
    }
    for name, form in forms.items():
        if name == "NAT64":
            assert (refusal(form) is None) == (refusal(address) is None)
        else:
            assert refusal(form) is not None, name


ODD = [
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "0x",
    "2130706433",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "127.0.0.01",
    "1.2.3.4.5",
    "256.0.0.1",
    "evil.example.0x7f",
    "::1%lo",
    "fe80::1%25eth0",
    "1::2::3",
    "[::1",
]


@pytest.mark.parametrize("host", ODD)
def test_odd_spellings_are_refused_not_interpreted(host: str) -> None:
    with pytest.raises(ToolError, match="unusual way"):
        literal(host)


@given(st.one_of(V4, V6))
def test_plain_spellings_are_read(address: IPv4Address | IPv6Address) -> None:
    assert literal(str(address)) == address


@pytest.mark.parametrize("host", ["example.com", "localhost", "1e100.net", "a.b-c.d2", "x0x7f", "0x7f.com"])
def test_names_are_names(host: str) -> None:
    assert literal(host) is None
