//! The hosts of a connection string, one by one, and the addresses of their names.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
};

use tokio::net;
use tokio_postgres::config::Host;

use super::Error;

/// Where the addresses of a name come from.
pub(super) type LookUp = Box<dyn Fn(String, u16) -> Answer + Send + Sync>;

/// The addresses of a name, sooner or later.
pub(super) type Answer = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Which address of which host it is, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) host: usize,
    pub(super) address: usize,
}

/// One address to connect to.
pub(super) struct Target {
    pub(super) postgres: tokio_postgres::Config,
    /// For messages.
    pub(super) place: String,
    pub(super) turn: Turn,
    /// Whose turn it is after this one.
    pub(super) after: Turn,
}

/// Each host of a string alone.
pub(super) fn each(all: &tokio_postgres::Config) -> Result<Vec<tokio_postgres::Config>, Error> {
    (0..all.get_hosts().len().max(all.get_hostaddrs().len()))
        .map(|number| alone(all, number).map_err(|error| Error::Config(error.into())))
        .collect()
}

/// Each address of the only host of `one`, which has this number among the hosts.
pub(super) async fn targets(
    one: &tokio_postgres::Config,
    host: usize,
    look_up: &LookUp,
) -> io::Result<Vec<Target>> {
    let mut found = Vec::new();
    if let ([Host::Tcp(name)], []) = (one.get_hosts(), one.get_hostaddrs()) {
        let port = one.get_ports().first().copied().unwrap_or(5432);
        for address in look_up(name.clone(), port).await? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
    }
    // One that is no name, or whose name leads nowhere, about which the driver has something to say.
    let many = found.len().max(1);
    let target = |address: usize| {
        let mut postgres = one.clone();
        // So that the driver doesn't ask for the name again.
        if let Some(found) = found.get(address) {
            postgres.hostaddr(*found);
        }
        let place = match many {
            1 => Place(one).to_string(),
            _ => Place(&postgres).to_string(),
        };
        let turn = Turn { host, address };
        let after = match address + 1 {
            next if next < many => Turn {
                host,
                address: next,
            },
            _ => Turn {
                host: host + 1,
                address: 0,
            },
        };
        Target {
            postgres,
            place,
            turn,
            after,
        }
    };
    Ok((0..many).map(target).collect())
}

/// Asks the resolver of the system.
pub(super) fn system() -> LookUp {
    Box::new(|name, port| {
        Box::pin(async move {
            let found = net::lookup_host((name.as_str(), port)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

/// The same way to connect, to the host of this number only.
fn alone(
    all: &tokio_postgres::Config,
    number: usize,
) -> Result<tokio_postgres::Config, &'static str> {
    let (hosts, addresses, ports) = (all.get_hosts(), all.get_hostaddrs(), all.get_ports());
    let many = hosts.len().max(addresses.len());
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        return Err("there are not as many hostaddr as host");
    }
    if ports.len() > 1 && ports.len() != many {
        return Err("there are not as many ports as hosts");
    }
    let mut one = tokio_postgres::Config::new();
    match hosts.get(number) {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = addresses.get(number) {
        one.hostaddr(*address);
    }
    if let Some(port) = ports.get(number).or_else(|| ports.first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = all.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .channel_binding(all.get_channel_binding())
        .load_balance_hosts(all.get_load_balance_hosts());
    Ok(one)
}

/// Shows where a way to connect leads, and nothing of the password.
pub(super) struct Place<'a>(pub(super) &'a tokio_postgres::Config);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hosts, addresses, ports) = (
            self.0.get_hosts(),
            self.0.get_hostaddrs(),
            self.0.get_ports(),
        );
        for number in 0..hosts.len().max(addresses.len()) {
            let port = ports.get(number).or_else(|| ports.first());
            let port = port.copied().unwrap_or(5432);
            if number > 0 {
                f.write_str(",")?;
            }
            match (hosts.get(number), addresses.get(number)) {
                (Some(Host::Unix(path)), _) => write!(f, "{}/.s.PGSQL.{port}", path.display())?,
                (Some(Host::Tcp(name)), Some(address)) => write!(f, "{name}[{address}]:{port}")?,
                (Some(Host::Tcp(name)), None) if name.contains(':') => {
                    write!(f, "[{name}]:{port}")?;
                }
                (Some(Host::Tcp(name)), None) => write!(f, "{name}:{port}")?,
                (None, Some(address)) => {
                    write!(f, "{}", SocketAddr::new(*address, port))?;
                }
                (None, None) => {}
            }
        }
        match self.0.get_dbname().or(self.0.get_user()) {
            Some(database) => write!(f, " (database {database})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_named_without_its_password() {
        let table = [
            ("postgres://u:hunter2@h/d", vec!["h:5432 (database d)"]),
            (
                "postgres://u:hunter2@h:1,i:2",
                vec!["h:1 (database u)", "i:2 (database u)"],
            ),
            (
                "host=h,i port=3 dbname=d",
                vec!["h:3 (database d)", "i:3 (database d)"],
            ),
            (
                "host=h hostaddr=192.0.2.1 dbname=d",
                vec!["h[192.0.2.1]:5432 (database d)"],
            ),
            (
                "hostaddr=192.0.2.1,2001:db8::1",
                vec!["192.0.2.1:5432", "[2001:db8::1]:5432"],
            ),
            (
                "postgres://[2001:db8::1]:7/d",
                vec!["[2001:db8::1]:7 (database d)"],
            ),
            (
                "host=/run/pg user=u",
                vec!["/run/pg/.s.PGSQL.5432 (database u)"],
            ),
        ];
        for (url, want) in table {
            let config: tokio_postgres::Config = url.parse().unwrap();
            let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
            let shown = |number| Place(&alone(&config, number).unwrap()).to_string();
            assert_eq!((0..hosts).map(shown).collect::<Vec<_>>(), want, "{url}");
        }
        let numbers = ["host=h,i hostaddr=192.0.2.1", "host=h,i port=1,2,3"];
        for url in numbers {
            let config = url.parse().unwrap();
            let error = each(&config).err().unwrap().to_string();
            assert!(error.contains("not as many"), "{url}: {error}");
        }
        let same = "postgres://u:hunter2@h:1/d?options=-csearch_path%3Dx&application_name=a&connect_timeout=3&keepalives=0\
                    &keepalives_interval=4&keepalives_retries=5&keepalives_idle=6&tcp_user_timeout=7&channel_binding=require\
                    &sslnegotiation=direct&load_balance_hosts=random&sslmode=require";
        let same: tokio_postgres::Config = same.parse().unwrap();
        assert!(alone(&same, 0).unwrap() == same, "nothing is lost");
    }

    #[tokio::test]
    async fn each_address_of_a_name_has_its_turn() {
        let look_up: LookUp = Box::new(|name, _| {
            let found = match &*name {
                "many" => vec![[192, 0, 2, 1], [192, 0, 2, 1], [192, 0, 2, 2]],
                "one" => vec![[192, 0, 2, 3]],
                _ => vec![],
            };
            Box::pin(async move { Ok(found.into_iter().map(IpAddr::from).collect()) })
        });
        let table = [
            (
                "many",
                "many[192.0.2.1]:5432 192.0.2.1, many[192.0.2.2]:5432 192.0.2.2",
            ),
            ("one", "one:5432 192.0.2.3"),
            ("none", "none:5432 "),
            ("/run/pg", "/run/pg/.s.PGSQL.5432 "),
        ];
        for (host, want) in table {
            let one = format!("host={host}").parse().unwrap();
            let found = targets(&one, 7, &look_up).await.unwrap();
            let shown = |target: &Target| {
                let addresses = target.postgres.get_hostaddrs();
                let addresses: Vec<_> = addresses.iter().map(IpAddr::to_string).collect();
                format!("{} {}", target.place, addresses.join(","))
            };
            assert_eq!(
                found.iter().map(shown).collect::<Vec<_>>().join(", "),
                want,
                "{host}"
            );
            for (address, pair) in found.windows(2).enumerate() {
                assert_eq!(pair[0].turn, Turn { host: 7, address });
                assert_eq!(pair[0].after, pair[1].turn);
            }
            let end = Turn {
                host: 8,
                address: 0,
            };
            assert_eq!(found.last().unwrap().after, end, "{host}");
        }
    }
}
