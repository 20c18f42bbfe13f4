//! The guard of an endpoint: which addresses its requests may be sent to.
//!
//! **Model.** A row chooses within path and query, never the host: that is literal in the configuration. So the guard is off
//! unless it is asked for, which is meant for URLs that somebody else wrote, such as customers' webhooks. He who may write a
//! URL must not reach what only we can reach: loopback, our network, the metadata of the cloud.
//!
//! **What is checked.** Not the name but the addresses that it has at the moment of each connection: it is resolved once, by
//! `Resolver`, and the HTTP library gets only addresses that passed and connects to no other. So a name that answers
//! something harmless at first, and an address of ours later, gains nothing. A host that is an address already, in whatever
//! spelling, is never resolved; it is checked before anything is sent, as the URL's parser reads it. The same holds for the
//! server of OAuth 2.0 tokens. Redirects, which would be another way in, are not followed at all.
//!
//! **Failure handling.** A refused address is a mistake of an endpoint, not of its rows, and DNS can be mended: the attempt
//! is filed as misconfigured and tried again late. It says nothing of the receiver's health, so the breaker stays closed.

mod ranges;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
};

use ipnet::IpNet;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};

use super::{Endpoint, auth};

/// Which addresses an endpoint may be sent to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Config {
    /// Any.
    #[default]
    Off,
    /// Those of the public internet, and these.
    On {
        /// Networks that are allowed although they are not public.
        allow: Vec<IpNet>,
    },
}

/// An address that the guard refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is {kind}, which the endpoint's guard refuses (guard.allow lists exceptions)")]
pub(super) struct Refused {
    address: IpAddr,
    kind: &'static str,
}

/// Where the addresses of a name come from.
pub(super) type Lookup = Arc<dyn Fn(String) -> Answer + Send + Sync>;

/// The addresses of a name, soon.
pub(super) type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves names to addresses that are allowed.
pub(super) struct Resolver {
    config: Arc<Config>,
    lookup: Lookup,
}

// === impl Config ===

impl Config {
    /// Whether anything is refused.
    pub fn is_on(&self) -> bool {
        match self {
            Config::Off => false,
            Config::On { .. } => true,
        }
    }

    /// Refuses a URL whose host is an address that its requests may not be sent to.
    ///
    /// # Errors
    ///
    /// What kind of address it is, and how to allow it.
    pub fn literal(&self, url: &Url) -> Result<(), String> {
        // An IPv6 address stands in brackets; a name has none.
        let host = url.host_str().unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        match host.parse() {
            Ok(address) => self.check(address).map_err(|refused| refused.to_string()),
            Err(_) => Ok(()),
        }
    }

    fn check(&self, address: IpAddr) -> Result<(), Refused> {
        let Config::On { allow } = self else {
            return Ok(());
        };
        let allowed = |address: &IpAddr| allow.iter().any(|network| network.contains(address));
        if allowed(&address) {
            return Ok(());
        }
        // Where a translator stands between, what counts is where it leads to.
        if let Some((inner, kind)) = ranges::embedded(address) {
            return match ranges::kind(inner.into()) {
                Some(_) if !allowed(&inner.into()) => Err(Refused { address, kind }),
                Some(_) | None => Ok(()),
            };
        }
        match ranges::kind(address) {
            Some(kind) => Err(Refused { address, kind }),
            None => Ok(()),
        }
    }

    /// Those of the answers that are allowed; an error if there are some, and none is.
    fn allowed(&self, answers: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Refused> {
        let mut refused = None;
        let mut allowed = Vec::new();
        for answer in answers {
            match self.check(answer.ip()) {
                Ok(()) => allowed.push(answer),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(refused) if allowed.is_empty() => Err(refused),
            Some(_) | None => Ok(allowed),
        }
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Config::Off => f.write_str("off"),
            Config::On { allow } if allow.is_empty() => f.write_str("on"),
            Config::On { allow } => {
                let allow: Vec<String> = allow.iter().map(IpNet::to_string).collect();
                write!(f, "on, allows {}", allow.join(", "))
            }
        }
    }
}

// === impl Resolver ===

impl Resolver {
    /// `None` where nothing is refused.
    pub(super) fn new(config: &Config, lookup: Lookup) -> Option<Resolver> {
        config.is_on().then(|| Resolver {
            config: Arc::new(config.clone()),
            lookup,
        })
    }
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (config, answer) = (
            Arc::clone(&self.config),
            (self.lookup)(name.as_str().to_owned()),
        );
        Box::pin(async move {
            let allowed = config.allowed(answer.await?)?;
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}

/// What the system says.
pub(super) fn system() -> Lookup {
    Arc::new(|name| {
        Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.collect()) })
    })
}

/// Refuses an endpoint one of whose URLs has an address as its host that is refused.
pub(super) fn literals(endpoint: &Endpoint) -> Result<(), String> {
    let named = |what: &'static str| move |refused| format!("{what}: {refused}");
    let guard = &endpoint.guard;
    guard.literal(&endpoint.url).map_err(named("url"))?;
    match &endpoint.auth {
        auth::Config::None | auth::Config::Bearer { .. } | auth::Config::Basic { .. } => Ok(()),
        auth::Config::OAuth2(config) => guard
            .literal(&config.token_url)
            .map_err(named("oauth2.token_url")),
    }
}

/// Reads a network such as `10.0.0.0/8`.
///
/// # Errors
///
/// What is wrong with it.
pub fn network(text: &str) -> Result<IpNet, String> {
    let network: IpNet = text.parse().map_err(|_| {
        format!(r#"must be a network such as "10.0.0.0/8" or "fd00::/8", found {text:?}"#)
    })?;
    if network.trunc() != network {
        let whole = network.trunc();
        return Err(format!(
            "{text:?} has bits behind its prefix: the network is {whole}"
        ));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(allow: &[&str]) -> Config {
        let allow = allow.iter().map(|text| network(text).unwrap()).collect();
        Config::On { allow }
    }

    fn literal(config: &Config, url: &str) -> Result<(), String> {
        config.literal(&url.parse().unwrap())
    }

    #[test]
    fn an_address_is_caught_in_any_spelling() {
        for host in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "2130706433",
            "0x7f.1",
            "0x7f000001",
            "0177.0.0.1",
            "%31%32%37.0.0.1",
            "①②⑦.0.0.1",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::127.0.0.1]",
            "[::ffff:127.0.0.1]",
            "[::FFFF:7f00:1]",
            "[64:ff9b::127.0.0.1]",
            "[2002:7f00:1::]",
            "0.0.0.0",
            "0",
            "[::]",
            "169.254.169.254",
            "[fd00:ec2::254]",
        ] {
            let url = format!("http://{host}:8080/hook");
            let error = literal(&on(&[]), &url).expect_err(host);
            assert!(error.contains("guard.allow"), "{error}");
            assert_eq!(literal(&Config::Off, &url), Ok(()), "{host}");
        }
        for host in ["93.184.216.34", "[2606:2800:220:1::1]", "localhost", "a.b"] {
            let url = format!("https://{host}/hook");
            assert_eq!(literal(&on(&[]), &url), Ok(()), "{host}");
        }
    }

    #[test]
    fn what_is_allowed_is_an_exception() {
        let config = on(&["127.0.0.0/8", "::1/128", "10.1.0.0/16"]);
        for (host, want) in [
            ("127.0.0.1", true),
            ("127.255.255.255", true),
            ("128.0.0.0", true),
            ("10.0.255.255", false),
            ("10.1.0.0", true),
            ("10.1.255.255", true),
            ("10.2.0.0", false),
            ("[::1]", true),
            ("[::2]", false),
            // The network that was allowed is not this one, though it may lead there.
            ("[::ffff:127.0.0.1]", false),
            ("[64:ff9b::10.1.2.3]", true),
            ("[64:ff9b::10.2.0.0]", false),
            ("[2002:0a01:0203::1]", true),
        ] {
            let found = literal(&config, &format!("http://{host}/")).is_ok();
            assert_eq!(found, want, "{host}");
        }
    }

    #[test]
    fn an_error_names_the_kind_and_the_key() {
        let error = literal(&on(&[]), "http://10.2.3.4/").unwrap_err();
        let want = "10.2.3.4 is a private address, which the endpoint's guard refuses (guard.allow lists exceptions)";
        assert_eq!(error, want);
        assert_eq!(on(&[]).to_string(), "on");
        let some = on(&["10.0.0.0/8", "::1/128"]);
        assert_eq!(some.to_string(), "on, allows 10.0.0.0/8, ::1/128");
    }

    #[test]
    fn networks_are_read_or_refused() {
        for text in ["10.0.0.0/8", "127.0.0.1/32", "::1/128", "0.0.0.0/0"] {
            assert_eq!(network(text).unwrap().to_string(), text);
        }
        for (text, want) in [
            ("10.0.0.0", "must be a network"),
            ("10.0.0.0/33", "must be a network"),
            ("localhost/8", "must be a network"),
            ("", "must be a network"),
            ("10.0.0.1/8", "the network is 10.0.0.0/8"),
            ("::1/64", "the network is ::/64"),
        ] {
            let error = network(text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }

    /// What a name resolves to, one answer after the other.
    async fn resolved(config: &Config, answers: &[&[&str]]) -> Vec<Result<Vec<String>, String>> {
        let answers: Vec<Vec<SocketAddr>> = answers
            .iter()
            .map(|answer| {
                let one = |text: &&str| SocketAddr::new(text.parse().unwrap(), 0);
                answer.iter().map(one).collect()
            })
            .collect();
        let count = answers.len();
        let answers = std::sync::Mutex::new(answers.into_iter());
        let lookup: Lookup = Arc::new(move |name| {
            assert_eq!(name, "a.example");
            let answer = answers.lock().unwrap().next().unwrap();
            Box::pin(async move { Ok(answer) })
        });
        let resolver = Resolver::new(config, lookup).unwrap();
        let mut all = Vec::new();
        for _ in 0..count {
            let resolved = resolver.resolve("a.example".parse().unwrap()).await;
            all.push(match resolved {
                Ok(addresses) => Ok(addresses.map(|a| a.ip().to_string()).collect()),
                Err(error) => Err(error.downcast::<Refused>().unwrap().to_string()),
            });
        }
        all
    }

    #[tokio::test]
    async fn only_allowed_answers_are_used() {
        let (public, v6) = ("93.184.216.34", "2606:2800:220:1::1");
        let answers: [&[&str]; 5] = [
            &[public, v6],
            &["10.0.0.1", public, "::1", v6],
            // The same name, a moment later.
            &["10.0.0.1"],
            &["::ffff:8.8.8.8", "127.0.0.1"],
            &[],
        ];
        let found = resolved(&on(&[]), &answers).await;
        let both = Ok(vec![public.to_owned(), v6.to_owned()]);
        assert_eq!(found[..2], [both.clone(), both]);
        let error = found[2].as_ref().unwrap_err();
        assert!(
            error.starts_with("10.0.0.1 is a private address"),
            "{error}"
        );
        let error = found[3].as_ref().unwrap_err();
        assert!(error.starts_with("::ffff:8.8.8.8 is "), "{error}");
        // That there is no address at all is for the HTTP library to say.
        assert_eq!(found[4], Ok(Vec::new()));

        let found = resolved(&on(&["10.0.0.0/8"]), &[&["10.0.0.1", "127.0.0.1"]]).await;
        assert_eq!(found, [Ok(vec!["10.0.0.1".to_owned()])]);
        assert!(Resolver::new(&Config::Off, system()).is_none());
    }
}
