//! Address ranges that are not the public internet, by the IANA special-purpose registries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `(network, prefix length, name)`. The first match names the rule.
const V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "cloud metadata"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "reserved"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmark"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(255, 255, 255, 255), 32, "broadcast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

const V6: &[(Ipv6Addr, u8, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "unspecified"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "local NAT64"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "unique local"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

const GLOBAL_UNICAST: (Ipv6Addr, u8) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const NAT64: (Ipv6Addr, u8) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Returns the name of the special range that an address is in; `None` for a public address.
///
/// Checks the address as written; see [`embedded`] for IPv4 addresses inside IPv6 ones.
pub(super) fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => special_v6(ip),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    V4.iter()
        .find(|(net, len, _)| (ip.to_bits() ^ net.to_bits()) & mask_v4(*len) == 0)
        .map(|(_, _, name)| *name)
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if let Some((_, _, name)) = V6.iter().find(|(net, len, _)| in_v6(ip, *net, *len)) {
        return Some(name);
    }
    if in_v6(ip, GLOBAL_UNICAST.0, GLOBAL_UNICAST.1) || embedded(ip).is_some() {
        return None;
    }
    Some("reserved")
}

/// Returns the IPv4 address that an IPv6 one stands for: mapped, compatible, NAT64 or 6to4.
pub(super) fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = ip.to_bits();
    let low = Ipv4Addr::from_bits(bits as u32);
    if bits >> 32 == 0xffff {
        return Some(low);
    }
    // `::` and `::1` are addresses of their own, not compatible forms.
    if bits >> 32 == 0 && bits > 1 {
        return Some(low);
    }
    if in_v6(ip, NAT64.0, NAT64.1) {
        return Some(low);
    }
    (bits >> 112 == 0x2002).then(|| Ipv4Addr::from_bits((bits >> 80) as u32))
}

fn mask_v4(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

fn in_v6(ip: Ipv6Addr, net: Ipv6Addr, len: u8) -> bool {
    let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
    (ip.to_bits() ^ net.to_bits()) & mask == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_ranges_are_named() {
        let table = [
            ("10.255.0.1", Some("private")),
            ("172.15.255.255", None),
            ("172.16.0.0", Some("private")),
            ("172.31.255.255", Some("private")),
            ("172.32.0.0", None),
            ("192.168.1.1", Some("private")),
            ("127.9.9.9", Some("loopback")),
            ("169.254.169.254", Some("link-local")),
            ("168.63.129.16", Some("cloud metadata")),
            ("168.63.129.17", None),
            ("100.63.255.255", None),
            ("100.64.0.0", Some("carrier-grade NAT")),
            ("100.127.255.255", Some("carrier-grade NAT")),
            ("0.0.0.0", Some("unspecified")),
            ("0.1.2.3", Some("unspecified")),
            ("255.255.255.255", Some("broadcast")),
            ("239.1.1.1", Some("multicast")),
            ("250.1.1.1", Some("reserved")),
            ("198.19.255.255", Some("benchmark")),
            ("203.0.113.7", Some("documentation")),
            ("8.8.8.8", None),
            ("::", Some("unspecified")),
            ("::1", Some("loopback")),
            ("fe80::1", Some("link-local")),
            ("febf::1", Some("link-local")),
            ("fec0::1", Some("reserved")),
            ("fd00:ec2::254", Some("unique local")),
            ("ff02::1", Some("multicast")),
            ("2001:db8::1", Some("documentation")),
            ("2001:0:1::1", Some("reserved")),
            ("100::1", Some("reserved")),
            ("64:ff9b:1::1", Some("local NAT64")),
            ("2606:4700::1111", None),
        ];
        for (text, want) in table {
            assert_eq!(special(text.parse().unwrap()), want, "{text}");
        }
    }

    #[test]
    fn ipv4_is_found_inside_ipv6() {
        let table = [
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("::127.0.0.1", Some("127.0.0.1")),
            ("64:ff9b::a00:1", Some("10.0.0.1")),
            ("2002:a00:1::5", Some("10.0.0.1")),
            ("2606:4700::1111", None),
            ("::1", None),
        ];
        for (text, want) in table {
            let want = want.map(|w| w.parse::<Ipv4Addr>().unwrap());
            assert_eq!(embedded(text.parse().unwrap()), want, "{text}");
        }
    }
}
