//! The guard: no address that is not public, in whatever spelling, gets through, unless its network is allowed.
//!
//! Parts: the host, then networks.
#![no_main]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libfuzzer_sys::fuzz_target;
use outbox_relay::delivery::guard::{Config, network};
use outbox_relay_fuzz::Parts;
use reqwest::Url;

/// What everybody agrees on, in other words than the guard's.
fn harmful(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => {
            let [first, second, ..] = a.octets();
            a.is_loopback()
                || a.is_private()
                || a.is_link_local()
                || a.is_multicast()
                || a.is_broadcast()
                || a.is_documentation()
                || first == 0
                || first >= 240
                || (first == 100 && (64..128).contains(&second))
                || (first == 198 && (18..20).contains(&second))
        }
        IpAddr::V6(a) => {
            let words = a.segments();
            let inner = |high: u16, low: u16| {
                harmful(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low)).into())
            };
            match words {
                [0x64, 0xff9b, 0, 0, 0, 0, high, low] => inner(high, low),
                [0x2002, high, low, ..] => inner(high, low),
                [0x2001, 0xdb8, ..] => true,
                [first, ..] => first & 0xe000 != 0x2000,
            }
        }
    }
}

fn address(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(host) => Some(host.parse::<Ipv6Addr>().expect(host).into()),
        None => host.parse::<Ipv4Addr>().ok().map(IpAddr::from),
    }
}

fuzz_target!(|input: &[u8]| {
    let mut parts = Parts::new(input);
    let host = parts.text();
    let mut allow = Vec::new();
    for text in parts.rest() {
        let text = String::from_utf8_lossy(text);
        match network(&text) {
            Ok(network_) => {
                assert_eq!(network(&network_.to_string()), Ok(network_));
                assert_eq!(network_.trunc(), network_);
                allow.push(network_);
            }
            Err(error) => assert!(!error.is_empty()),
        }
    }
    let Ok(url) = Url::parse(&format!("http://{host}/hook")) else {
        return;
    };
    let closed = Config::On { allow: Vec::new() };
    let open = Config::On {
        allow: allow.clone(),
    };
    assert_eq!(Config::Off.literal(&url), Ok(()));
    let Some(address) = address(&url) else {
        // A name is checked when it is resolved. None that the system would take for an address gets here.
        assert_eq!(closed.literal(&url), Ok(()));
        let name = url.host_str().unwrap_or_default();
        assert!(name.parse::<IpAddr>().is_err(), "{url}");
        return;
    };
    let refused = closed.literal(&url).is_err();
    assert!(refused || !harmful(address), "{address} gets through");
    let inside = allow.iter().any(|network| network.contains(&address));
    let opened = open.literal(&url).is_ok();
    assert!(opened || !inside, "{address} is allowed");
    assert!(opened || refused, "what is allowed closes nothing");
});
