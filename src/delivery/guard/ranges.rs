//! Addresses that are not the public internet's, by the registries of special-purpose addresses (RFC 6890 and what
//! followed): pure.
//!
//! Of IPv6 only `2000::/3` is given out, so all else is refused without being listed; the list says what it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{Ipv4Net, Ipv6Net};

const PRIVATE: &str = "a private address";
const LOOPBACK: &str = "a loopback address";
const LINK_LOCAL: &str = "a link-local address (where clouds keep their metadata)";
const MULTICAST: &str = "a multicast address";
const DOCUMENTATION: &str = "an address for documentation";
const BENCHMARKS: &str = "an address for benchmarks";
const PROTOCOLS: &str = "an address for protocols";
const RESERVED: &str = "a reserved address";

/// The first that contains an address says what it is.
const V4: [(Ipv4Net, &str); 18] = [
    (v4([0, 0, 0, 0], 32), "the unspecified address"),
    (v4([0, 0, 0, 0], 8), "an address of this very network"),
    (v4([10, 0, 0, 0], 8), PRIVATE),
    (v4([100, 64, 0, 0], 10), "an address of a carrier's NAT"),
    (v4([127, 0, 0, 0], 8), LOOPBACK),
    (
        v4([168, 63, 129, 16], 32),
        "the address of Azure's platform",
    ),
    (v4([169, 254, 0, 0], 16), LINK_LOCAL),
    (v4([172, 16, 0, 0], 12), PRIVATE),
    (v4([192, 0, 0, 0], 24), PROTOCOLS),
    (v4([192, 0, 2, 0], 24), DOCUMENTATION),
    (v4([192, 88, 99, 0], 24), "an address of 6to4 relays"),
    (v4([192, 168, 0, 0], 16), PRIVATE),
    (v4([198, 18, 0, 0], 15), BENCHMARKS),
    (v4([198, 51, 100, 0], 24), DOCUMENTATION),
    (v4([203, 0, 113, 0], 24), DOCUMENTATION),
    (v4([224, 0, 0, 0], 4), MULTICAST),
    (v4([255, 255, 255, 255], 32), "the broadcast address"),
    (v4([240, 0, 0, 0], 4), RESERVED),
];

const V6: [(Ipv6Net, &str); 20] = [
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 128), "the unspecified address"),
    (v6([0, 0, 0, 0, 0, 0, 0, 1], 128), LOOPBACK),
    (
        v6([0, 0, 0, 0, 0, 0, 0, 0], 96),
        "an IPv4-compatible address",
    ),
    (
        v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96),
        "an IPv4-mapped address",
    ),
    (
        v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96),
        "an IPv4-translated address",
    ),
    (
        v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48),
        "an address of a private NAT64",
    ),
    (
        v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64),
        "an address for what is discarded",
    ),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), "a Teredo address"),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48), BENCHMARKS),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), PROTOCOLS),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), DOCUMENTATION),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), DOCUMENTATION),
    (
        v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16),
        "an address of segment routing",
    ),
    (
        v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254], 128),
        "the address of AWS's metadata",
    ),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7), PRIVATE),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), LINK_LOCAL),
    (
        v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10),
        "a site-local address",
    ),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), MULTICAST),
    (v6([0, 0, 0, 0, 0, 0, 0, 0], 3), RESERVED),
    (v6([0x4000, 0, 0, 0, 0, 0, 0, 0], 2), RESERVED),
];

/// From here on IPv6 addresses are reserved, but for those that the list has by another name.
const LAST: Ipv6Net = v6([0x8000, 0, 0, 0, 0, 0, 0, 0], 1);

const NAT64: Ipv6Net = v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96);
const SIX_TO_FOUR: Ipv6Net = v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16);

const fn v4(bytes: [u8; 4], prefix: u8) -> Ipv4Net {
    let [a, b, c, d] = bytes;
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6(words: [u16; 8], prefix: u8) -> Ipv6Net {
    let [a, b, c, d, e, f, g, h] = words;
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}

/// What an address is, with an article; `None` for one of the public internet.
///
/// To be asked of what is [`embedded`] instead, where there is such.
pub(super) fn kind(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            let found = V4.iter().find(|(network, _)| network.contains(&address));
            found.map(|(_, kind)| *kind)
        }
        IpAddr::V6(address) => {
            let found = V6.iter().find(|(network, _)| network.contains(&address));
            let last = LAST.contains(&address).then_some(RESERVED);
            found.map(|(_, kind)| *kind).or(last)
        }
    }
}

/// The IPv4 address that a translator finds in an IPv6 one, and what to call it should that be refused.
pub(super) fn embedded(address: IpAddr) -> Option<(Ipv4Addr, &'static str)> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let [_, _, a, b, c, d, ..] = address.octets();
    let [.., e, f, g, h] = address.octets();
    if NAT64.contains(&address) {
        let kind = "a NAT64 address of one that is not public";
        Some((Ipv4Addr::new(e, f, g, h), kind))
    } else if SIX_TO_FOUR.contains(&address) {
        let kind = "a 6to4 address of one that is not public";
        Some((Ipv4Addr::new(a, b, c, d), kind))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The address just before a range, its first, its last, the one just after; `-` = one that is of no interest, because
    /// there is none or another range begins there.
    const EDGES: &str = "
- 0.0.0.0 0.255.255.255 1.0.0.0
9.255.255.255 10.0.0.0 10.255.255.255 11.0.0.0
100.63.255.255 100.64.0.0 100.127.255.255 100.128.0.0
126.255.255.255 127.0.0.0 127.255.255.255 128.0.0.0
168.63.129.15 168.63.129.16 168.63.129.16 168.63.129.17
169.253.255.255 169.254.0.0 169.254.255.255 169.255.0.0
172.15.255.255 172.16.0.0 172.31.255.255 172.32.0.0
191.255.255.255 192.0.0.0 192.0.0.255 192.0.1.0
192.0.1.255 192.0.2.0 192.0.2.255 192.0.3.0
192.88.98.255 192.88.99.0 192.88.99.255 192.88.100.0
192.167.255.255 192.168.0.0 192.168.255.255 192.169.0.0
198.17.255.255 198.18.0.0 198.19.255.255 198.20.0.0
198.51.99.255 198.51.100.0 198.51.100.255 198.51.101.0
203.0.112.255 203.0.113.0 203.0.113.255 203.0.114.0
223.255.255.255 224.0.0.0 239.255.255.255 -
- 240.0.0.0 255.255.255.255 -
- :: ::ffff:ffff -
- ::ffff:0:0 ::ffff:255.255.255.255 -
- ::ffff:0:0:0 ::ffff:0:255.255.255.255 -
- 64:ff9b:1:: 64:ff9b:1:ffff:ffff:ffff:ffff:ffff -
- 100:: 100::ffff:ffff:ffff:ffff -
- :: 1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2000::
2000:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2001:: 2001:0:ffff:ffff:ffff:ffff:ffff:ffff -
- 2001:2:: 2001:2:0:ffff:ffff:ffff:ffff:ffff -
- 2001:1:: 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff 2001:200::
2001:db7:ffff:ffff:ffff:ffff:ffff:ffff 2001:db8:: 2001:db8:ffff:ffff:ffff:ffff:ffff:ffff 2001:db9::
3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff 3fff:: 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff 3fff:1000::
3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 4000:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -
- 5f00:: 5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff -
- fc00:: fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -
- fd00:ec2::254 fd00:ec2::254 -
- fe80:: febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff -
- fec0:: feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -
- ff00:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff -";

    #[test]
    fn every_range_begins_and_ends_where_it_should() {
        let refused = |text: &str| kind(text.parse().expect(text)).is_some();
        for row in EDGES.lines().skip(1) {
            let edges: Vec<&str> = row.split(' ').collect();
            let [before, first, last, after] = edges[..] else {
                panic!("{row}")
            };
            assert!(refused(first) && refused(last), "{row}");
            for outside in [before, after].into_iter().filter(|edge| *edge != "-") {
                assert!(!refused(outside), "{outside} in {row}");
            }
        }
    }

    #[test]
    fn kinds_are_told_apart() {
        for (text, want) in [
            ("0.0.0.0", "the unspecified address"),
            ("0.0.0.1", "an address of this very network"),
            ("100.100.100.200", "an address of a carrier's NAT"),
            ("168.63.129.16", "the address of Azure's platform"),
            ("169.254.169.254", LINK_LOCAL),
            ("192.0.0.192", PROTOCOLS),
            ("255.255.255.254", RESERVED),
            ("255.255.255.255", "the broadcast address"),
            ("::", "the unspecified address"),
            ("::1", LOOPBACK),
            ("::2", "an IPv4-compatible address"),
            ("::8.8.8.8", "an IPv4-compatible address"),
            ("::ffff:8.8.8.8", "an IPv4-mapped address"),
            ("2001::1", "a Teredo address"),
            ("2001:2::1", BENCHMARKS),
            ("2001:20::1", PROTOCOLS),
            ("1::", RESERVED),
            ("4000::", RESERVED),
            ("8000::", RESERVED),
            ("fbff::", RESERVED),
            ("fe00::", RESERVED),
            ("fd00:ec2::254", "the address of AWS's metadata"),
            ("fd00:ec2::253", PRIVATE),
            ("fe80::1", LINK_LOCAL),
        ] {
            assert_eq!(kind(text.parse().unwrap()), Some(want), "{text}");
        }
        for text in ["1.1.1.1", "8.8.8.8", "2606:4700::1111", "2a00:1450::1"] {
            assert_eq!(kind(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn an_address_within_an_address_is_found() {
        for (text, want) in [
            ("64:ff9b::", Some("0.0.0.0")),
            ("64:ff9b::10.0.0.1", Some("10.0.0.1")),
            ("64:ff9b::ffff:ffff", Some("255.255.255.255")),
            ("64:ff9b::1:0:0", None),
            ("64:ff9a:ffff:ffff:ffff:ffff:ffff:ffff", None),
            ("2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff", None),
            ("2002::", Some("0.0.0.0")),
            ("2002:a00:1::5", Some("10.0.0.1")),
            (
                "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
                Some("255.255.255.255"),
            ),
            ("2003::", None),
            ("::ffff:10.0.0.1", None),
            ("10.0.0.1", None),
        ] {
            let found = embedded(text.parse().unwrap());
            assert_eq!(
                found.map(|(address, _)| address.to_string()).as_deref(),
                want,
                "{text}"
            );
        }
    }
}
